"""How the weights of a checkpoint are quantised already, and whether the spec asks for the same."""

from __future__ import annotations

from collections.abc import Mapping

from trt_spec.plan.finding import Finding
from trt_spec.plan.model_files import ModelFiles
from trt_spec.spec.model import Role, Spec

UNQUANTISED = "none"
SPEC_NAMES = {"FP8": "fp8", "FP8_PER_CHANNEL_PER_TOKEN": "fp8_rowwise"}
"""TensorRT-LLM's QuantAlgo, and the spec's ``quantization`` that builds from such weights without changing them."""

METHOD_ALGORITHMS = {"fbgemm_fp8": "FP8_PER_CHANNEL_PER_TOKEN"}
"""``quantization_config.quant_method`` of a config.json, by TensorRT-LLM's llm_utils; ModelOpt writes the algorithm."""


def resolve_source_quantization(files: ModelFiles) -> str:
    """The QuantAlgo of the stored weights ("FP8", ...), or "none".

    hf_quant_config.json of ModelOpt decides; without it ``quantization_config`` of config.json.
    """
    recorded = files.quantization.get("quantization")
    if isinstance(recorded, Mapping) and recorded.get("quant_algo"):
        return str(recorded["quant_algo"])
    config = files.config.get("quantization_config")
    if not isinstance(config, Mapping):
        return UNQUANTISED
    method = str(config.get("quant_method") or "unknown")
    return str(config.get("quant_algo") or METHOD_ALGORITHMS.get(method, method.upper()))


def judge_source_quantization(spec: Spec, files: Mapping[Role, ModelFiles]) -> tuple[Finding, ...]:
    """A refusal for each model whose stored weights are quantised otherwise than the spec says."""
    findings = []
    for role, model in spec.models().items():
        stored = resolve_source_quantization(files[role])
        if stored == UNQUANTISED or SPEC_NAMES.get(stored) == model.quantization:
            continue
        remedy = (
            f"Set {role}.quantization to {SPEC_NAMES[stored]}, or name the unquantised model."
            if stored in SPEC_NAMES
            else f"Name the unquantised model, or one with weights in {' or '.join(SPEC_NAMES)}."
        )
        message = f"{role}: the weights of {model.model} are stored in {stored}, quantization is {model.quantization}."
        findings.append(Finding("source-quantization", "refuse", message, remedy, role))
    return tuple(findings)
