"""The engine folders that a repository names: whether they are there, whole, and what they are meant for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import groupby
from pathlib import Path

from trt_spec.deploy.check.engine_config import is_tensorrt
from trt_spec.deploy.check.engine_files import COPY_AGAIN, judge_engine
from trt_spec.deploy.check.finding import CheckFinding
from trt_spec.deploy.check.rules.report import found_parameter
from trt_spec.deploy.check.version import read_version
from trt_spec.deploy.check.view import ModelView, RepositoryView
from trt_spec.deploy.parameter_names import ENGINE_PATH

_SHOWN_FAULTS = 4  # of one kind in one engine
_SHOWN_CHARACTERS = 200


def check_folders(view: RepositoryView) -> Iterator[CheckFinding]:
    """The folders that gpt_model_path names. Where neither one nor its parent is here, it is another machine's."""
    for name, engine in view.engines.items():
        located = view.options.locate(engine.named)
        if engine.config is not None:
            continue
        shown = engine.named[:_SHOWN_CHARACTERS]
        if located is None:
            yield _fault(
                view.models[name],
                "engine-path",
                f"{name}: gpt_model_path {shown!r} is no absolute path",
                "it counts from wherever Triton is started",
                "Write the path from the root, as Triton sees it.",
            )
        elif engine.folder is None and _is_folder(located.parent):
            yield _fault(
                view.models[name],
                "engine-missing",
                f"{name}: gpt_model_path {shown!r} does not exist, the folder around it does",
                "the model does not load without its engine",
                "Correct the path, or build the engine there.",
            )
        elif engine.folder is not None:
            yield _fault(
                view.models[name],
                "engine-config",
                f"{name}: {engine.folder}: {engine.fault or 'there is no config.json'}",
                "TensorRT-LLM loads no engine without it",
                COPY_AGAIN,
            )


def check_engines(view: RepositoryView) -> Iterator[CheckFinding]:
    """Version, architecture, rank files and record of every engine that is seen from here (B082).

    The contents of rank files are not compared: they are hundreds of gigabytes, and `trtspec check` of the engine
    folder itself reads them.
    """
    for name, engine in view.engines.items():
        if engine.folder is not None and engine.config is not None:
            faults = judge_engine(engine.folder, engine.config, view.meant, view.options.compute_capability)
            yield from _at_model(view.models[name], engine.folder, faults)


def _at_model(model: ModelView, folder: Path, faults: Iterator[CheckFinding]) -> Iterator[CheckFinding]:
    """Faults of a folder as those of the model that names it; many of one kind are one."""
    line = model.line_of("parameters", ENGINE_PATH)
    for _code, group in groupby(faults, lambda fault: fault.code):
        rows = list(group)
        more = f" and {len(rows) - _SHOWN_FAULTS} more" if rows[_SHOWN_FAULTS:] else ""
        whats = "; ".join(row.what for row in rows[:_SHOWN_FAULTS])
        yield replace(rows[0], file=model.file, line=line, what=f"{model.name}: {folder}: {whats}{more}")


def check_one_version(view: RepositoryView) -> Iterator[CheckFinding]:
    """The engines against each other."""
    versions = {
        name: version
        for name, engine in view.engines.items()
        if is_tensorrt(engine.config) and (version := read_version(engine)) is not None
    }
    if len(set(versions.values())) > 1:
        first, listed = next(iter(versions)), ", ".join(f"{name} {version}" for name, version in versions.items())
        yield _fault(
            view.models[first],
            "engine-versions-differ",
            f"{first}: the engines come from different versions of TensorRT-LLM: {listed}",
            "one container loads engines of its own version only",
            "Build all engines with one version.",
        )


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except (OSError, ValueError):
        return False


def _fault(model: ModelView, code: str, what: str, why: str, remedy: str) -> CheckFinding:
    return found_parameter(model, ENGINE_PATH, code, "error", what, why, remedy)


RULES = (check_folders, check_engines, check_one_version)
