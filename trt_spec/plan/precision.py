"""FP8 where the GPU, the checkpoint and the split allow it: what the spec alone cannot know."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from trt_spec.plan.facts import ModelFacts
from trt_spec.plan.finding import Finding
from trt_spec.plan.hardware import Gpu
from trt_spec.plan.model_files import ModelFiles
from trt_spec.plan.source_quantization import UNQUANTISED, resolve_source_quantization
from trt_spec.spec.model import Model, Role, Spec

KV_SCALE_SUFFIXES = (".k_scale", ".v_scale", ".kv_scale", ".kv_cache_scaling_factor")


def has_kv_scales(files: ModelFiles | None) -> bool:
    """Whether an engine of this checkpoint can have an FP8 KV cache with scales of its own.

    Unquantised weights are calibrated while building, and get them. Quantised ones need them stored: TensorRT-LLM reads
    ``kv_cache_quant_algo``, which ModelOpt writes to hf_quant_config.json.
    """
    if files is None or resolve_source_quantization(files) == UNQUANTISED:
        return True
    recorded = files.quantization.get("quantization")
    if isinstance(recorded, Mapping) and recorded.get("kv_cache_quant_algo") == "FP8":
        return True
    return any(name.endswith(KV_SCALE_SUFFIXES) for name in files.tensors or ())


def is_fp8_attention(model: Model, gpu: Gpu, files: ModelFiles | None) -> bool:
    """Whether context attention runs in FP8: weights and KV cache in FP8, compute capability 8.9, KV scales.

    Anything else is switched off or refused by TensorRT-LLM's builder (1.3.0rc3 builder.py:1060-1085), and with an FP8
    cache paged context attention needs it on.
    """
    return model.quantization == "fp8" and model.kv_cache_dtype == "fp8" and gpu.has_fp8 and has_kv_scales(files)


def check_precision(
    spec: Spec, role: Role, facts: ModelFacts, gpu: Gpu, files: ModelFiles | None = None
) -> tuple[Finding, ...]:
    """What stands against the precision of one engine on this GPU from this checkpoint."""
    model = spec.models()[role]
    return (*_check_gpu(role, model, gpu), *_check_scales(role, model, files), *_check_split(role, model, facts))


def _check_gpu(role: Role, model: Model, gpu: Gpu) -> Iterator[Finding]:
    asked = [f"quantization {model.quantization}"] if model.quantization in ("fp8", "fp8_rowwise") else []
    asked += ["kv_cache_dtype fp8"] if model.kv_cache_dtype == "fp8" else []
    if asked and not gpu.has_fp8:
        yield Finding(
            "gpu-without-fp8",
            "refuse",
            f"{role}: {' and '.join(asked)} needs compute capability 8.9 or newer, {gpu.name} has {gpu.sm}.",
            f"Set {role}.quantization to none and {role}.kv_cache_dtype to auto, or use L40S, H100, H200 or B200.",
            role,
        )


def _check_scales(role: Role, model: Model, files: ModelFiles | None) -> Iterator[Finding]:
    if model.kv_cache_dtype == "fp8" and files is not None and not has_kv_scales(files):
        yield Finding(
            "kv-fp8-without-scales",
            "refuse",
            f"{role}: kv_cache_dtype fp8, but {model.model} is quantised without KV cache scales "
            "(kv_cache_quant_algo is not FP8).",
            f"Set {role}.kv_cache_dtype to auto, or quantise the unquantised model with an FP8 KV cache.",
            role,
        )


def _check_split(role: Role, model: Model, facts: ModelFacts) -> Iterator[Finding]:
    if model.quantization == "fp8" and model.tensor_parallel > facts.kv_heads:
        yield Finding(
            "fp8-kv-heads-repeated",
            "warn",
            f"{role}: tensor_parallel {model.tensor_parallel} repeats {facts.kv_heads} KV heads; NVIDIA's converter "
            "fails on this with FP8 scales (0.17.0 and 1.3.0rc3).",
            f"Set {role}.tensor_parallel to at most {facts.kv_heads}.",
            role,
        )
