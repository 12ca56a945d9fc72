"""What a checkpoint says of fixed tokens, by transformers on the CPU; run by the engine's interpreter.

    python reference_logprobs.py FOLDER… < QUESTION

The question is JSON: `tokens` (ids whose logprobs are asked for, each given those before it), `prompt` (ids) and
`count` (how many tokens to go on greedily). The answer is a line of JSON, a list with one entry a folder: `logprobs`
and `greedy`. Weights and sums are float32.
"""

import json
import sys

import torch
from transformers import AutoModelForCausalLM


def asked(folder: str, question: dict) -> dict:
    """One checkpoint's answer."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    with torch.no_grad():
        tokens = torch.tensor([question["tokens"]])
        scores = model(tokens).logits[0].log_softmax(-1)
        logprobs = scores[:-1].gather(1, tokens[0, 1:, None])[:, 0]
        sequence = torch.tensor([question["prompt"]])
        for _ in range(question["count"]):
            following = model(sequence).logits[0, -1].argmax()
            sequence = torch.cat([sequence, following.reshape(1, 1)], dim=1)
    return {"logprobs": logprobs.tolist(), "greedy": sequence[0, len(question["prompt"]) :].tolist()}


if __name__ == "__main__":
    question = json.load(sys.stdin)
    print(json.dumps([asked(folder, question) for folder in sys.argv[1:]]))
