"""The registry of architectures that can be converted."""

from __future__ import annotations

from trt_spec.build.checkpoint import llama, qwen2
from trt_spec.build.checkpoint.mapping import Family
from trt_spec.errors import SpecError

ARCHITECTURES: dict[str, Family] = {
    "LlamaForCausalLM": llama.FAMILY,
    "Qwen2ForCausalLM": qwen2.FAMILY,
}


def find_family(architecture: str) -> Family:
    """The family of ``architectures[0]`` of a config.json. Raises SpecError listing those that are known."""
    if architecture not in ARCHITECTURES:
        raise SpecError(
            f"Architecture {architecture!r} cannot be converted.",
            remedy=f"Architectures with a mapping: {', '.join(ARCHITECTURES)}.",
        )
    return ARCHITECTURES[architecture]
