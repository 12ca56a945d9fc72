"""Make the tiny dense Qwen3 checkpoint in a folder; run by the engine's own interpreter.

    python make_dense_model.py FOLDER SEED

Two layers, hidden size 256, four heads, a vocabulary of 512, random bfloat16 weights from the seed: 1.4 million
parameters, 3 MiB. The tokenizer is a byte-level BPE trained here on the text below, so nothing is downloaded. The
weights are drawn wide (0.1) and the embeddings untied, so that greedy tokens vary and no two logits are nearly equal.
"""

import sys

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

TEXT = [
    "The engine sleeps and its memory is released; the engine wakes up and its memory is mapped again.",
    "A request that arrives is queued by the scheduler, run by the model runner, and answered token by token.",
    "Pause and resume close and open the gate of the scheduler; a weight update replaces the weights in place.",
    "0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 32 64 128 256 512 1024 2048 4096 8192",
]
VOCABULARY = 512


def make(folder: str, seed: int) -> None:
    """Write configuration, weights and tokenizer to `folder`."""
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
    torch.manual_seed(seed)
    config = Qwen3Config(
        vocab_size=VOCABULARY,
        hidden_size=256,
        intermediate_size=512,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=64,
        max_position_embeddings=4096,
        tie_word_embeddings=False,
        initializer_range=0.1,
        bos_token_id=0,
        eos_token_id=0,
        pad_token_id=0,
    )
    Qwen3ForCausalLM(config).to(torch.bfloat16).save_pretrained(folder)


if __name__ == "__main__":
    make(sys.argv[1], int(sys.argv[2]))
