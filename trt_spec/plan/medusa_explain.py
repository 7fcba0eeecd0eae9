"""Where the figures of a plan with Medusa heads come from."""

from __future__ import annotations

from trt_spec.plan.explanation import Explanation
from trt_spec.plan.medusa import MedusaPlan


def explain_medusa(plan: MedusaPlan) -> tuple[Explanation, ...]:
    """Every derived figure of the heads and their tree."""
    heads = plan.heads
    return (
        Explanation(
            "medusa.head_bytes",
            str(plan.head_bytes),
            f"{heads.count} heads of {heads.layers} layer(s) and one output matrix each, on one rank",
            "TensorRT-LLM models/medusa/weight.py; checked against recorded converter outputs",
        ),
        Explanation(
            "medusa.expected_tokens",
            f"{plan.expected_tokens:.3f}",
            f"1 + the probability of each of {len(plan.choices)} nodes: the product of its guesses' accuracies; "
            f"{plan.accuracies.explanation}",
            "Cai et al., arXiv 2401.10774, section 2.3.3",
        ),
        *(
            Explanation(
                f"medusa.speedup.batch_{row.batch}",
                f"{row.speedup:.3f}",
                f"{plan.expected_tokens:.3f} tokens * {row.plain_step_s * 1e3:.2f} ms plain / {row.step_s * 1e3:.2f} "
                f"ms over {plan.max_draft_len + 1} positions with all heads",
                "trt_spec/plan/roofline.py; TensorRT-LLM computes max_draft_len + 1 positions in every step",
            )
            for row in plan.batches
        ),
    )
