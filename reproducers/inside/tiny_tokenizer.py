"""The tokenizer of the tiny models: a byte-level BPE, trained on the text below, so that nothing is downloaded."""

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

TEXT = [
    "The engine sleeps and its memory is released; the engine wakes up and its memory is mapped again.",
    "A request that arrives is queued by the scheduler, run by the model runner, and answered token by token.",
    "Pause and resume close and open the gate of the scheduler; a weight update replaces the weights in place.",
    "0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 32 64 128 256 512 1024 2048 4096 8192",
]
VOCABULARY = 512


def write_tokenizer(folder: str) -> None:
    """Write the tokenizer to `folder`."""
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=["<|endoftext|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    bpe.train_from_iterator(TEXT, trainer)
    PreTrainedTokenizerFast(
        tokenizer_object=bpe, eos_token="<|endoftext|>", pad_token="<|endoftext|>", model_max_length=4096
    ).save_pretrained(folder)
