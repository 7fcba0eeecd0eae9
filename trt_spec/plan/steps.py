"""The steps of a build, planned before anything runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trt_spec.spec.model import Draft, Model, Role, Spec

WEIGHT_BITS = {"none": 32, "int8": 8, "int4": 4}
BLOCK_SIZES = {8: 128, 4: 32}
"""Weights that share a float32 scale, along the input dimension, by bits: larger blocks cost int4 too much accuracy
(measured acceptance)."""
SPECULATIVE_DECODING_MODE = {"none": 1, "draft_tokens_external": 2, "medusa": 4}
"""Serialised values in an engine's config.json (TensorRT-LLM, SpeculativeDecodingMode)."""


def engine_mode(spec: Spec, max_draft_len: int) -> str:
    """trtllm-build's speculation mode of an engine of ``spec`` that verifies up to ``max_draft_len`` tokens a step."""
    if not max_draft_len:
        return "none"
    return "medusa" if spec.speculation.mode == "medusa" else "draft_tokens_external"


@dataclass(frozen=True)
class Step:
    """One output folder to make: ``params`` are everything about it that the spec decides, paths excepted.

    ``argv`` is the exact command line, empty where trtspec does the work in its own process. ``inputs`` are folders
    that other steps make or that are there already; a step waits for those that make them.
    """

    id: str
    kind: str
    role: Role
    source: str
    params: Mapping[str, Any]
    argv: tuple[str, ...] = ()
    inputs: tuple[Path, ...] = ()
    outputs: tuple[Path, ...] = ()


def plan_onnx_steps(spec: Spec) -> tuple[Step, ...]:
    """One engine for each model of the pair, the draft's first: it is the smaller one and fails sooner."""
    return tuple(_plan_onnx_engine(spec, role, model) for role, model in reversed(spec.models().items()))


def _plan_onnx_engine(spec: Spec, role: Role, model: Model) -> Step:
    limits = spec.limits
    max_draft_len = spec.external_draft_len if role == "target" else 0
    params: dict[str, Any] = {
        "weight_bits": WEIGHT_BITS[model.quantization],
        "max_batch_size": limits.max_batch_size,
        "max_input_len": limits.max_input_len,
        "max_draft_len": max_draft_len,
        # As trtllm-build does: the drafted tokens come on top of prompt and answer.
        "max_seq_len": limits.max_input_len + limits.max_output_len + max_draft_len,
        "speculative_decoding_mode": SPECULATIVE_DECODING_MODE["draft_tokens_external" if max_draft_len else "none"],
    }
    if isinstance(model, Draft) and model.layers is not None:
        params["layers"] = list(model.layers)
    return Step(id=f"engine-{role}", kind="onnx_engine", role=role, source=model.model, params=params)
