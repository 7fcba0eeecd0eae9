"""transformers in fp32, run by benchmarks/peers.py in an environment of its own: peer_transformers.py MODEL"""

from __future__ import annotations

import sys

import torch
from peer_worker import serve, take_stdout
from transformers import AutoModelForCausalLM


def main() -> None:
    answers = take_stdout()
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_pretrained(sys.argv[1], dtype=torch.float32).eval()
    # The only smaller model with this vocabulary is a copy of itself; bf16 halves what it reads.
    assistant = AutoModelForCausalLM.from_pretrained(sys.argv[1], dtype=torch.bfloat16).eval()

    def generate(prompts: list[list[int]], tokens: int, assisted: bool = False) -> list[int]:
        lengths = []
        for ids in prompts:
            inputs = torch.tensor([ids])
            options = {"assistant_model": assistant} if assisted else {}
            with torch.inference_mode():
                out = model.generate(
                    inputs,
                    attention_mask=torch.ones_like(inputs),
                    max_new_tokens=tokens,
                    min_new_tokens=tokens,
                    do_sample=False,
                    pad_token_id=0,
                    **options,
                )
            lengths.append(out.shape[1] - len(ids))
        return lengths

    serve(generate, answers)


main()
