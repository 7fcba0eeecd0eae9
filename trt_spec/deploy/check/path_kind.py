"""What a folder is, by what lies in it."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from trt_spec.deploy.check.reading import is_folder, list_folder, read_json_object
from trt_spec.deploy.ownership import MARKER_FILE
from trt_spec.deploy.parameter_names import MODEL_CONFIG
from trt_spec.errors import SpecError
from trt_spec.plan.workspace import Workspace

PathKind = Literal["repository", "engine", "checkpoint"]
CONFIG_FILE = "config.json"
_EXPECTED = "Give a model repository, an engine folder or a TensorRT-LLM checkpoint."


def resolve_checked(path: Path) -> tuple[Path, PathKind]:
    """Return the folder to check and what it is; a workspace stands for its repository.

    Raises SpecError for a folder that cannot be read or is none of the known kinds.
    """
    entries, fault = list_folder(path)
    if fault:
        raise SpecError(f"{path} {fault}.", remedy=_EXPECTED)
    names = {entry.name for entry in entries}
    workspace = Workspace(path)
    if workspace.manifest.name in names and workspace.repository.is_dir():
        return workspace.repository, "repository"
    if MODEL_CONFIG in names:
        raise SpecError(
            f"{path} is one model of a repository: it has a {MODEL_CONFIG} of its own.",
            remedy=f"Check the repository that holds it: trtspec check {path.absolute().parent}",
        )
    if CONFIG_FILE in names:
        return path, _judge_config(path, names)
    if MARKER_FILE in names or any(
        (path / entry.name / MODEL_CONFIG).exists() for entry in entries if is_folder(entry)
    ):
        return path, "repository"
    raise SpecError(
        f"{path} holds no model with a {MODEL_CONFIG} and no {CONFIG_FILE}: it is no model repository, no engine and "
        "no checkpoint.",
        remedy=_EXPECTED,
    )


def _judge_config(path: Path, names: set[str]) -> PathKind:
    """TensorRT-LLM's engines and checkpoints both have a config.json; an engine's has a section about its build."""
    if any(name.startswith("rank") and name.endswith(".engine") for name in names):
        return "engine"
    config, _ = read_json_object(path / CONFIG_FILE)
    return "engine" if config is not None and "build_config" in config else "checkpoint"
