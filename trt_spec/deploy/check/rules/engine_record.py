"""Whether the engine folders that a repository names are what was built, and for the container and GPUs at hand."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from trt_spec.deploy.check.finding import CheckFinding
from trt_spec.deploy.check.path_kind import CONFIG_FILE
from trt_spec.deploy.check.reading import MAX_JSON_BYTES, read_json_object, read_text
from trt_spec.deploy.check.rules.reading import is_tensorrt, pretrained_config, rank_count, section
from trt_spec.deploy.check.rules.report import found_parameter
from trt_spec.deploy.check.rules.roles import resolve_roles
from trt_spec.deploy.check.view import EngineView, ModelView, RepositoryView
from trt_spec.plan.engine_record import judge_files, judge_version
from trt_spec.plan.toolchain.containers import containers_with, find_container
from trt_spec.spec.model import Role

MANIFEST_FILE = "manifest.json"
_MAX_RANKS = 4096
_SHOWN_DIGITS = 12
_SHOWN_FILES = 4
_SHOWN_CHARACTERS = 200


def check_folders(view: RepositoryView) -> Iterator[CheckFinding]:
    """The folders that gpt_model_path names. Where neither one nor its parent is here, it is another machine's."""
    for name, engine in view.engines.items():
        located = view.options.locate(engine.named)
        if engine.config is not None:
            continue
        shown = engine.named[:_SHOWN_CHARACTERS]
        if located is None:
            yield _at_engine(
                view.models[name],
                "engine-path",
                f"{name}: gpt_model_path {shown!r} is no absolute path",
                "it counts from wherever Triton is started",
                "Write the path from the root, as Triton sees it.",
            )
        elif engine.folder is None and _is_folder(located.parent):
            yield _at_engine(
                view.models[name],
                "engine-missing",
                f"{name}: gpt_model_path {shown!r} does not exist, the folder around it does",
                "the model does not load without its engine",
                "Correct the path, or build the engine there.",
            )
        elif engine.folder is not None:
            yield _at_engine(
                view.models[name],
                "engine-config",
                f"{name}: {engine.folder}: {engine.fault or 'there is no config.json'}",
                "TensorRT-LLM loads no engine without it",
                "Copy the whole engine folder, or build it again.",
            )


def check_files(view: RepositoryView) -> Iterator[CheckFinding]:
    """Rank files against the mapping, and every file against the manifest of our own builds (B082)."""
    for model, engine, role in _known_engines(view):
        if engine.folder is None:
            continue
        yield from _check_ranks(model, engine.folder, engine.config, rank_count(pretrained_config(view, model.name)))
        record = load_engine_record(engine.folder)
        files = {name: entry for name, entry in section(record, "files").items() if _is_entry(name, entry)}
        found = {name: size for name in files if (size := _size(engine.folder / name)) is not None}
        for finding in judge_files({"files": files}, found, role):
            yield _at_engine(model, "engine-file", finding.message, "a part of an engine does not load", finding.remedy)
        yield from _check_digest(model, engine.folder, files.get(CONFIG_FILE))


def _check_ranks(
    model: ModelView, folder: Path, config: Mapping[str, Any] | None, ranks: int | None
) -> Iterator[CheckFinding]:
    if ranks is None or ranks > _MAX_RANKS or not is_tensorrt(config):
        return
    missing = [name for name in (f"rank{rank}.engine" for rank in range(ranks)) if not _size(folder / name)]
    if missing:
        more = f" and {len(missing) - _SHOWN_FILES} more" if missing[_SHOWN_FILES:] else ""
        listed = ", ".join(missing[:_SHOWN_FILES]) + more
        yield _at_engine(
            model,
            "engine-ranks",
            f"{model.name}: {folder} is an engine of {ranks} ranks; missing or empty: {listed}",
            "every rank loads a file of its own",
            "Copy the whole engine folder, or build it again.",
        )


def _check_digest(model: ModelView, folder: Path, entry: Mapping[str, Any] | None) -> Iterator[CheckFinding]:
    text, fault = read_text(folder / CONFIG_FILE, MAX_JSON_BYTES)
    expected = entry.get("sha256") if entry else None
    if fault or not isinstance(expected, str):
        return
    digest = hashlib.sha256(text.encode()).hexdigest()
    if digest != expected:
        yield _at_engine(
            model,
            "engine-edited",
            f"{model.name}: hash mismatch of {folder / CONFIG_FILE}: sha256 {digest[:_SHOWN_DIGITS]}, its manifest "
            f"says {expected[:_SHOWN_DIGITS]}",
            "the file was edited after the build; the engine itself keeps the sizes it was built with",
            "Restore config.json, and build again with other limits instead.",
        )


def check_versions(view: RepositoryView) -> Iterator[CheckFinding]:
    """The TensorRT-LLM that wrote each engine against the container's, and the engines against each other."""
    versions = {}
    for model, engine, role in _known_engines(view):
        version = (engine.config or {}).get("version")
        if not isinstance(version, str) or not is_tensorrt(engine.config):
            continue
        versions[model.name] = version
        yield from _check_container(view, model, version, role)
    if len(set(versions.values())) > 1:
        first, listed = next(iter(versions)), ", ".join(f"{name} {version}" for name, version in versions.items())
        yield _at_engine(
            view.models[first],
            "engine-versions-differ",
            f"{first}: the engines come from different versions of TensorRT-LLM: {listed}",
            "one container loads engines of its own version only",
            "Build all engines with one version.",
        )


def _check_container(view: RepositoryView, model: ModelView, version: str, role: Role) -> Iterator[CheckFinding]:
    why = "an engine loads with the TensorRT that wrote it only"
    image = view.options.image
    if image is not None and find_container(image) is not None:
        for finding in judge_version(version, image, role):
            message = finding.message.removeprefix(f"{role}: ").rstrip(".")
            yield _at_engine(model, "engine-version", f"{model.name}: {message}", why, finding.remedy)
        return
    stated = view.options.tensorrt_llm or (view.marker or {}).get("tensorrt_llm")
    if isinstance(stated, str) and stated != version:
        rows = containers_with(version)
        use = f"use the container {rows[0].container}" if rows else "use the container that it was built in"
        yield _at_engine(
            model,
            "engine-version",
            f"{model.name}: the engine was built with TensorRT-LLM {version}, the repository is for {stated}",
            why,
            f"Build the engine with {stated}, or {use} and a repository for {version}.",
        )


def check_architecture(view: RepositoryView) -> Iterator[CheckFinding]:
    """The GPUs that an engine was built on, as our own builds record them, against the stated compute capability."""
    wanted = view.options.compute_capability
    if wanted is None:
        return
    for model, engine, _role in _known_engines(view):
        gpus = load_engine_record(engine.folder).get("gpus") if engine.folder else None
        for gpu in gpus if isinstance(gpus, list) else []:
            built = gpu.get("compute_capability") if isinstance(gpu, Mapping) else None
            if isinstance(built, str) and _digits(built) != _digits(wanted):
                yield _at_engine(
                    model,
                    "engine-gpu",
                    f"{model.name}: the engine is sm{_digits(built)}, the GPUs are sm{_digits(wanted)}",
                    "an engine runs on the architecture it was built for only",
                    "Build the engine on a GPU of the serving kind.",
                )
                break


def load_engine_record(folder: Path) -> Mapping[str, Any]:
    """manifest.json of an engine that `trtspec build` made, empty where there is none."""
    return read_json_object(folder / MANIFEST_FILE)[0] or {}


def _known_engines(view: RepositoryView) -> Iterator[tuple[ModelView, EngineView, Role]]:
    """Engine models whose engine folder is seen from here, with the role that messages call them by."""
    draft = resolve_roles(view).draft
    for name, engine in view.engines.items():
        if engine.folder is not None:
            yield view.models[name], engine, "draft" if name == draft else "target"


def _is_entry(name: str, entry: Any) -> bool:
    """A build records names without a path, so nothing outside the engine folder is looked at."""
    return "/" not in name and isinstance(entry, Mapping) and isinstance(entry.get("bytes"), int)


def _size(path: Path) -> int | None:
    try:
        return path.stat().st_size if path.is_file() else None
    except (OSError, ValueError):
        return None


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except (OSError, ValueError):
        return False


def _digits(compute_capability: str) -> str:
    return re.sub(r"[^0-9]", "", compute_capability)


def _at_engine(model: ModelView, code: str, what: str, why: str, remedy: str) -> CheckFinding:
    return found_parameter(model, "gpt_model_path", code, "error", what, why, remedy)


RULES = (check_folders, check_files, check_versions, check_architecture)
