"""What a model is for, told by what it declares: folders may have any name."""

from __future__ import annotations

from typing import Literal

from trt_spec.deploy.check.view import ModelView
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

ModelKind = Literal["engine", "orchestrator", "ensemble", "preprocessing", "postprocessing", "llmapi", "other"]

DIALECT_NAMES: dict[ModelKind, str] = {
    "engine": TARGET_MODEL,
    "orchestrator": UNARY_MODEL,
    "ensemble": STREAMING_MODEL,
    "preprocessing": "preprocessing",
    "postprocessing": "postprocessing",
}
"""The model of NVIDIA's templates that each kind is compared with; the others have none."""


def find_kind(model: ModelView) -> ModelKind:
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
    if config.backend == PYTHON_BACKEND and (model.folder / VERSION_FOLDER / LLMAPI_FILE).is_file():
        return "llmapi"
    return "other"


def find_dialect_name(model: ModelView) -> str | None:
    """Return the model of NVIDIA's templates whose tensors this one has to declare; None where there is none."""
    kind = find_kind(model)
    if kind == "orchestrator" and model.name == STREAMING_MODEL and is_ours(model):
        return STREAMING_MODEL
    return DIALECT_NAMES.get(kind)


def is_ours(model: ModelView) -> bool:
    """Whether the model runs the orchestrator of trtspec."""
    return (model.folder / VERSION_FOLDER / SERVE_PACKAGE).is_dir()


def is_placeholder(value: str) -> bool:
    """Whether a parameter is still what NVIDIA's template has there, which NVIDIA's own models read as unset."""
    return value.startswith("${")
