"""What a Medusa checkpoint can say of its target: what NVIDIA's converter cannot write, or writes otherwise.

Sources: TensorRT-LLM examples/medusa/convert_checkpoint.py, models/medusa/weight.py (convert_hf_llama, load_medusa_hf)
and the support matrix of examples/medusa/README.md (FP16, BF16, tensor parallelism).
"""

from __future__ import annotations

from collections.abc import Iterator

from trt_spec.plan.facts import ModelFacts
from trt_spec.plan.finding import Finding
from trt_spec.plan.medusa_heads import MedusaHeads


def check_medusa_target(
    facts: ModelFacts, heads: MedusaHeads, tensor_parallel: int, pipeline_parallel: int
) -> Iterator[Finding]:
    """What stands against a target of these shapes with these heads over so many ranks, or is worth knowing. Pure."""
    yield from _check_model(facts)
    yield from _check_split(facts, tensor_parallel, pipeline_parallel)
    if heads.is_fp8:
        yield from _check_fp8(heads)
    if facts.rope_scaling is not None and facts.rope_scaling.rope_type != "default":
        yield Finding(
            "medusa-rope",
            "note",
            "target: rotary scaling is written whole; NVIDIA's Medusa script of 1.x keeps its type alone and would "
            "lose the factors. No recorded output shows either.",
            role="target",
        )


def _check_model(facts: ModelFacts) -> Iterator[Finding]:
    if facts.architecture != "LlamaForCausalLM":
        yield _refuse(
            "medusa-architecture",
            f"target: Medusa checkpoints of {facts.architecture} are not written.",
            "Choose a target of the Llama family: NVIDIA's output is recorded for it alone.",
        )
    elif facts.qkv_bias or facts.output_bias or facts.mlp_bias:
        yield _refuse(
            "medusa-biases",
            "target: the model has biases in its layers, which a Medusa checkpoint does not say.",
            "Choose a target without biases.",
        )


def _check_split(facts: ModelFacts, tensor_parallel: int, pipeline_parallel: int) -> Iterator[Finding]:
    if pipeline_parallel != 1:
        yield _refuse(
            "medusa-stages",
            f"target: pipeline_parallel {pipeline_parallel} with Medusa heads; TensorRT-LLM lists tensor parallelism "
            "alone.",
            "Set pipeline_parallel to 1.",
        )
    for words, size in (("vocabulary", facts.vocab_size), ("hidden size", facts.hidden_size)):
        if size % tensor_parallel:
            yield _refuse(
                "medusa-split",
                f"target: {words} {size} does not divide by tensor_parallel {tensor_parallel}, and NVIDIA's converter "
                "pads no heads.",
                f"Choose a tensor_parallel that divides {facts.vocab_size} and {facts.hidden_size}.",
            )


def _check_fp8(heads: MedusaHeads) -> Iterator[Finding]:
    if heads.layers > 1:
        yield _refuse(
            "medusa-fp8-layers",
            f"target: FP8 heads of {heads.layers} layers are not written: NVIDIA's converter keeps the scales of the "
            "last layer alone.",
            "Export the heads unquantised.",
        )
    yield Finding(
        "medusa-fp8-heads",
        "warn",
        "target: FP8 heads are written as TensorRT-LLM's models/medusa/weight.py does by reading; no recorded output "
        "confirms it.",
        "Compare the answers of the built engine with those of the plain target before serving it.",
        "target",
    )


def _refuse(code: str, message: str, remedy: str) -> Finding:
    return Finding(code, "refuse", message, remedy, "target")
