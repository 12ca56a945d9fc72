"""Make a tiny hybrid checkpoint in a folder; run by the engine's own interpreter.

    python make_hybrid_model.py FOLDER SEED FAMILY

`falcon-h1` has Mamba 2 beside attention in each of its two layers; `qwen3-next`, the family that #44972 was reported
with, has three gated delta nets and one attention layer, and one layer of experts, which vLLM wants to see there.
Random bfloat16 weights from the seed, drawn wide, as in the dense model.
"""

import sys

import torch
from tiny_tokenizer import VOCABULARY, write_tokenizer
from transformers import FalconH1Config, FalconH1ForCausalLM, Qwen3NextConfig, Qwen3NextForCausalLM

COMMON = {
    "vocab_size": VOCABULARY,
    "hidden_size": 256,
    "intermediate_size": 512,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 64,
    "max_position_embeddings": 4096,
    "tie_word_embeddings": False,
    "initializer_range": 0.1,
    "bos_token_id": 0,
    "eos_token_id": 0,
    "pad_token_id": 0,
}


def falcon_h1() -> FalconH1ForCausalLM:
    """Two layers with Mamba 2 and attention side by side."""
    config = FalconH1Config(
        **COMMON,
        num_hidden_layers=2,
        mamba_d_ssm=512,
        mamba_n_heads=8,
        mamba_d_head=64,
        mamba_n_groups=1,
        mamba_d_state=64,
        mamba_d_conv=4,
        mamba_chunk_size=128,
        time_step_limit=(0.0, 1e9),  # an infinite one is written as JSON that other transformers cannot read
    )
    return FalconH1ForCausalLM(config)


def qwen3_next() -> Qwen3NextForCausalLM:
    """Three gated delta nets and one attention layer; the last one has experts."""
    config = Qwen3NextConfig(
        **COMMON,
        num_hidden_layers=4,
        linear_num_key_heads=4,
        linear_num_value_heads=8,
        linear_key_head_dim=64,
        linear_value_head_dim=64,
        linear_conv_kernel_dim=4,
        num_experts=4,
        num_experts_per_tok=2,
        moe_intermediate_size=128,
        shared_expert_intermediate_size=128,
        mlp_only_layers=[0, 1, 2],
    )
    return Qwen3NextForCausalLM(config)


def make(folder: str, seed: int, family: str) -> None:
    """Write configuration, weights and tokenizer to `folder`."""
    write_tokenizer(folder)
    torch.manual_seed(seed)
    model = {"falcon-h1": falcon_h1, "qwen3-next": qwen3_next}[family]()
    model.to(torch.bfloat16).save_pretrained(folder)


if __name__ == "__main__":
    make(sys.argv[1], int(sys.argv[2]), sys.argv[3])
