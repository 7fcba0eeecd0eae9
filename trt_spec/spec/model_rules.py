"""Rules over one model of a spec: its reference, precision and split, by backend."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from trt_spec.spec.draft_source import EXTERNAL_DRAFT_MODES
from trt_spec.spec.reference import DEMO_MODEL, FOLDER_PREFIXES, judge_reference
from trt_spec.spec.self_draft import SELF
from trt_spec.util.text import join_choices, printable

if TYPE_CHECKING:
    from trt_spec.spec.model import Model, Spec

ModelRule = Callable[["Spec", "Model"], Iterator[tuple[str, str]]]
"""Yields key of the model and message of each broken rule."""

QUANTIZATIONS = {
    "engine": ("none", "fp8", "fp8_rowwise"),
    "onnx": ("none", "int8", "int4"),
    "llmapi": ("none", "fp8"),
}


def _reference(spec: Spec, model: Model) -> Iterator[tuple[str, str]]:
    if model.model == SELF:
        return  # judged by _self_draft
    kind = judge_reference(model.model)
    if kind is None:
        yield (
            "model",
            f'found "{printable(model.model)}", expected a Hugging Face id as owner/name, a folder that starts with '
            f"{join_choices(FOLDER_PREFIXES)}, or {DEMO_MODEL}",
        )
    elif kind != "hub" and model.revision is not None:
        yield "revision", f'found "{model.revision}", expected no revision: only Hugging Face ids have one'


def _dtype(spec: Spec, model: Model) -> Iterator[tuple[str, str]]:
    if spec.backend == "onnx" and model.dtype not in ("auto", "float32"):
        yield "dtype", f"found {model.dtype}, backend onnx expects auto or float32: it computes in float32"
    elif spec.backend == "engine" and model.dtype == "float32" and spec.speculation.mode in EXTERNAL_DRAFT_MODES:
        yield (
            "dtype",
            "found float32, expected auto, bfloat16 or float16: TensorRT-LLM lists only these and FP8 for draft-target",
        )


def _quantization(spec: Spec, model: Model) -> Iterator[tuple[str, str]]:
    choices = QUANTIZATIONS[spec.backend]
    if model.quantization not in choices:
        yield "quantization", f"found {model.quantization}, backend {spec.backend} expects {join_choices(choices)}"


def _kv_cache(spec: Spec, model: Model) -> Iterator[tuple[str, str]]:
    if model.kv_cache_dtype != "fp8":
        return
    if spec.backend == "onnx":
        yield "kv_cache_dtype", "found fp8, backend onnx expects auto: its KV cache is float32"
    elif spec.backend == "engine" and model.quantization != "fp8":
        # TensorRT-LLM 1.3.0rc3 builder.py:1060-1085, 0.17 builder.py:1103-1108; runtime check in
        # trtGptModelInflightBatching.cpp.
        yield (
            "kv_cache_dtype",
            f"found fp8 with quantization {model.quantization}, expected auto, or quantization fp8: otherwise the "
            "builder drops paged context FMHA, and with it the KV cache block reuse that draft-target needs",
        )


def _split_on_cpu(spec: Spec, model: Model) -> Iterator[tuple[str, str]]:
    if spec.backend != "onnx":
        return
    for key, size in (("tensor_parallel", model.tensor_parallel), ("pipeline_parallel", model.pipeline_parallel)):
        if size > 1:
            yield key, f"found {size}, backend onnx expects 1: it runs on one CPU"
    if model.gpus is not None:
        yield "gpus", "found GPU indices, backend onnx expects none: it runs on the CPU"


def _split_on_gpus(spec: Spec, model: Model) -> Iterator[tuple[str, str]]:
    if spec.backend == "onnx" or spec.hardware is None:
        return
    ranks, available = model.tensor_parallel * model.pipeline_parallel, spec.hardware.gpus * spec.hardware.nodes
    if ranks > available:
        yield (
            "tensor_parallel",
            f"found {model.tensor_parallel} x pipeline_parallel {model.pipeline_parallel} = {ranks} ranks, expected at "
            f"most {available}: the hardware section has that many GPUs",
        )
    if model.gpus is None:
        return
    if len(model.gpus) != ranks:
        yield "gpus", f"found {len(model.gpus)} indices, expected {ranks} (tensor_parallel x pipeline_parallel)"
    if len(set(model.gpus)) != len(model.gpus):
        yield "gpus", f"found an index twice in {list(model.gpus)}, expected every GPU once"
    if max(model.gpus) >= available:
        yield (
            "gpus",
            f"found index {max(model.gpus)}, expected 0 to {available - 1}: the hardware section has that many",
        )


def _split_of_llmapi(spec: Spec, model: Model) -> Iterator[tuple[str, str]]:
    if spec.backend != "llmapi":
        return
    if model.pipeline_parallel > 1 and spec.speculation.mode != "none":
        yield (
            "pipeline_parallel",
            f"found {model.pipeline_parallel}, expected 1: the PyTorch path of TensorRT-LLM does not combine pipeline "
            "parallelism with speculative decoding",
        )
    if model.tensor_parallel not in (1, spec.target.tensor_parallel):
        yield (
            "tensor_parallel",
            f"found {model.tensor_parallel}, expected none or {spec.target.tensor_parallel}: the PyTorch path splits "
            "the draft as the target",
        )


MODEL_RULES: tuple[ModelRule, ...] = (
    _reference,
    _dtype,
    _quantization,
    _kv_cache,
    _split_on_cpu,
    _split_on_gpus,
    _split_of_llmapi,
)
