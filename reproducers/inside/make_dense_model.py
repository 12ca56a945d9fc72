"""Make the tiny dense Qwen3 checkpoint in a folder; run by the engine's own interpreter.

    python make_dense_model.py FOLDER SEED

Two layers, hidden size 256, four heads, a vocabulary of 512, random bfloat16 weights from the seed: 1.4 million
parameters, 3 MiB. The weights are drawn wide (0.1) and the embeddings untied, so that greedy tokens vary and no two
logits are nearly equal.
"""

import sys

import torch
from tiny_tokenizer import VOCABULARY, write_tokenizer
from transformers import Qwen3Config, Qwen3ForCausalLM


def make(folder: str, seed: int) -> None:
    """Write configuration, weights and tokenizer to `folder`."""
    write_tokenizer(folder)
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
