"""How the weights of a checkpoint are quantised already, and whether the spec asks for the same."""

from __future__ import annotations

from collections.abc import Mapping

from trt_spec.plan.finding import Finding
from trt_spec.plan.model_files import ModelFiles
from trt_spec.spec.model import Role, Spec

UNQUANTISED = "none"
UNQUANTISED_REMEDY = "Name the unquantised checkpoint, and choose `quantization` in the spec."
SPEC_NAMES = {"FP8": "fp8", "FP8_PER_CHANNEL_PER_TOKEN": "fp8_rowwise"}
"""TensorRT-LLM's QuantAlgo, and the spec's ``quantization`` that builds from such weights without changing them."""

CONFIG_KEYS = ("quantization_config", "compression_config")
"""Where config.json says it; the second is what older compressed-tensors wrote."""

METHOD_ALGORITHMS = {"fbgemm_fp8": "FP8_PER_CHANNEL_PER_TOKEN"}
"""``quantization_config.quant_method`` of a config.json, by TensorRT-LLM's llm_utils; ModelOpt writes the algorithm."""


def resolve_source_quantization(files: ModelFiles) -> str:
    """The QuantAlgo of the stored weights ("FP8", ...), or "none".

    hf_quant_config.json of ModelOpt decides; without it ``quantization_config`` of config.json.
    """
    recorded = files.quantization.get("quantization")
    if isinstance(recorded, Mapping) and recorded.get("quant_algo"):
        return str(recorded["quant_algo"])
    config = next((files.config[key] for key in CONFIG_KEYS if files.config.get(key) is not None), None)
    if config is None:
        return UNQUANTISED
    if not isinstance(config, Mapping):
        return "UNKNOWN"
    method = str(config.get("quant_method") or "unknown")
    return str(config.get("quant_algo") or METHOD_ALGORITHMS.get(method, method.upper()))


def judge_quantized_source(spec: Spec, files: Mapping[Role, ModelFiles]) -> tuple[Finding, ...]:
    """A refusal for each quantised checkpoint: backend onnx quantises by itself, from unquantised weights."""
    stored = {role: resolve_source_quantization(files[role]) for role in spec.models()}
    return tuple(
        Finding(
            "source-quantization",
            "refuse",
            f"{role}: the weights of {files[role].reference} are stored in {kind}; onnx needs unquantised ones.",
            UNQUANTISED_REMEDY,
            role,
        )
        for role, kind in stored.items()
        if kind != UNQUANTISED
    )


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
