"""What a model is for, told by what it declares: folders may have any name."""

from __future__ import annotations

import stat
from typing import TYPE_CHECKING, Literal

from trt_spec.deploy.check.reading import FaultKind, is_file_at, look_at
from trt_spec.deploy.parameter_names import (
    DRAFT_NAME,
    ENGINE_BACKEND,
    ENGINE_PATH,
    ENSEMBLE_PLATFORM,
    LLMAPI_FILE,
    PYTHON_BACKEND,
    TARGET_NAME,
)
from trt_spec.deploy.repository import SERVE_PACKAGE, VERSION_FOLDER
from trt_spec.serve.contract import STREAMING_MODEL, TARGET_MODEL, UNARY_MODEL

if TYPE_CHECKING:
    from trt_spec.deploy.check.view import ModelView

ModelKind = Literal["engine", "orchestrator", "ensemble", "preprocessing", "postprocessing", "llmapi", "other"]

_OURS_ALONE = "engine_seed_name"  # NVIDIA's models have no such parameter

_TEXT_STEPS = 3  # preprocessing, the engine, postprocessing

DIALECT_NAMES: dict[ModelKind, str] = {
    "engine": TARGET_MODEL,
    "orchestrator": UNARY_MODEL,
    "ensemble": STREAMING_MODEL,
    "preprocessing": "preprocessing",
    "postprocessing": "postprocessing",
}
"""The model of NVIDIA's templates that each kind is compared with; the others have none."""


def find_kind(model: ModelView) -> ModelKind:
    """Return what a model is for, as ``judge_kind``; looked up once, because every rule asks."""
    return model.kind


def is_ours(model: ModelView) -> bool:
    """Whether a model runs the orchestrator of trtspec, as ``judge_ours``; looked up once."""
    return model.is_ours


def judge_kind(model: ModelView) -> ModelKind:
    """Return what a model is for; "other" where that cannot be told, or its configuration does not parse.

    "orchestrator" is what calls the engines for one request: NVIDIA's tensorrt_llm_bls and ours, which also serves as
    our ensemble.
    """
    config = model.config
    if config is None:
        return "other"
    inputs = {tensor.name for tensor in config.inputs}
    if config.steps or config.backend == ENSEMBLE_PLATFORM:
        return "ensemble"
    if config.backend == ENGINE_BACKEND or (ENGINE_PATH in config.parameters and "input_ids" in inputs):
        return "engine"
    if TARGET_NAME in config.parameters or DRAFT_NAME in config.parameters:
        return "orchestrator"
    if "QUERY" in inputs:
        return "preprocessing"
    if "TOKENS_BATCH" in inputs:
        return "postprocessing"
    if config.backend == PYTHON_BACKEND and is_file_at(model.folder / VERSION_FOLDER / LLMAPI_FILE):
        return "llmapi"
    return "other"


def find_dialect_name(model: ModelView) -> str | None:
    """Return the model of NVIDIA's templates whose tensors this one has to declare; None where there is none."""
    kind = find_kind(model)
    if kind == "orchestrator" and model.name == STREAMING_MODEL and is_ours(model):
        return STREAMING_MODEL
    steps = {step.model_name for step in model.config.steps} if model.config else ()
    if kind == "ensemble" and len(steps) > _TEXT_STEPS:
        return None  # another pipeline, such as NVIDIA's for pictures: its tensors are not recorded
    return DIALECT_NAMES.get(kind)


def judge_ours(model: ModelView) -> bool:
    """Whether the model runs the orchestrator of trtspec; where its code cannot be looked at, its parameters tell."""
    mode, fault = look_at(model.folder / VERSION_FOLDER / SERVE_PACKAGE)
    if fault is not None and fault.kind is FaultKind.REFUSED:
        return model.config is not None and _OURS_ALONE in model.config.parameters
    return stat.S_ISDIR(mode)


def is_placeholder(value: str) -> bool:
    """Whether a parameter is still what NVIDIA's template has there, which NVIDIA's own models read as unset."""
    return value.startswith("${")
