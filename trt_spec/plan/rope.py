"""Which rotary scalings a version of TensorRT-LLM can build."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from trt_spec.plan.facts import ROPE_TYPES
from trt_spec.plan.finding import Finding
from trt_spec.spec.model import Role
from trt_spec.spec.rules import release_numbers


@dataclass(frozen=True)
class RopeSupport:
    """The first release of TensorRT-LLM (and of transformers, which reads config.json) with a rotary scaling."""

    tensorrt_llm: str
    triton: str
    transformers: str
    needed_keys: tuple[str, ...]


# TensorRT-LLM release notes, 0.12.0: "Supported LLaMA 3.1 model"; Triton's compatibility table; transformers 4.43.0
# release notes. The other types are older than every version that trtspec builds with.
ROPE_SUPPORT = {
    "llama3": RopeSupport(
        tensorrt_llm="0.12.0",
        triton="24.08",
        transformers="4.43",
        needed_keys=("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"),
    )
}


def check_rope(config: Mapping[str, Any], tensorrt_llm: str, role: Role) -> tuple[Finding, ...]:
    """Whether that version of TensorRT-LLM can build the rotary scaling of a parsed ``config.json``.

    Reads both spellings: ``rope_scaling`` with ``type`` or ``rope_type``, and ``rope_parameters`` of transformers 5.
    """
    settings = config.get("rope_parameters") or config.get("rope_scaling") or {}
    if not isinstance(settings, Mapping):
        return (_refused(f"{role}: rope_scaling is {settings!r}, expected an object.", "", role),)
    rope_type = settings.get("rope_type") or settings.get("type") or "default"
    if rope_type not in ROPE_TYPES:
        return (
            _refused(
                f"{role}: rope type {rope_type!r} is not supported.", f"Supported: {', '.join(ROPE_TYPES)}.", role
            ),
        )
    support = ROPE_SUPPORT.get(rope_type)
    if support is None:
        return ()
    if release_numbers(tensorrt_llm) < release_numbers(support.tensorrt_llm):
        return (
            _refused(
                f"{role}: rope type {rope_type} needs TensorRT-LLM {support.tensorrt_llm} or newer (Triton container "
                f"{support.triton}) and transformers {support.transformers} or newer, found TensorRT-LLM "
                f"{tensorrt_llm}.",
                'Set tensorrt_llm: "1.2.1".',
                role,
            ),
        )
    missing = [key for key in support.needed_keys if settings.get(key) is None]
    if missing:
        return (
            _refused(
                f"{role}: rope type {rope_type} needs {', '.join(missing)} in config.json, not found.",
                "Download config.json again.",
                role,
            ),
        )
    return ()


def _refused(message: str, remedy: str, role: Role) -> Finding:
    return Finding("shape-rope", "refuse", message, remedy, role)
