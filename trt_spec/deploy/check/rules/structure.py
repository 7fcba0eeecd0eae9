"""Folders and files of a model: its name, its version folders, model.py, and what Triton may read.

Sources: Triton server docs/user_guide/model_repository.md; a Python model without model.py leaves Triton waiting for
ever (seen with 2.51.0).
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path

from trt_spec.deploy.check.finding import CheckFinding
from trt_spec.deploy.check.reading import FaultKind, ReadFault, is_folder, list_folder, shown
from trt_spec.deploy.check.rules.report import found
from trt_spec.deploy.check.view import ModelView, RepositoryView
from trt_spec.deploy.parameter_names import ENGINE_BACKEND, ENSEMBLE_PLATFORM, PYTHON_BACKEND

_VERSION = re.compile(r"[1-9]\d*", re.ASCII)  # Triton passes over 0 and everything that begins with it
_MAX_FILES = 20_000  # looked at in one model
_MODEL_FILE = "model.py"


def check_names(view: RepositoryView) -> Iterator[CheckFinding]:
    """A model is known by its folder, and its configuration must not say otherwise."""
    for model in view.models.values():
        config = model.config
        if config is None or config.name in ("", model.name):
            continue
        yield found(
            model,
            ("name",),
            "model-name",
            "error",
            f'the folder is {model.name}, its name says "{config.name}"',
            "Triton loads no model whose name differs from its folder",
            f'Set name: "{model.name}", or rename the folder.',
            model.name,
        )


def check_backends(view: RepositoryView) -> Iterator[CheckFinding]:
    """Somebody has to run the model."""
    for model in view.models.values():
        if model.config is not None and not model.config.backend:
            yield found(
                model,
                ("backend",),
                "backend-missing",
                "error",
                f"{model.name} names neither a backend nor a platform",
                "Triton does not know what to run it with",
                f'Set backend: "{ENGINE_BACKEND}" for an engine, "{PYTHON_BACKEND}" for a model.py.',
            )


def check_version_folders(view: RepositoryView) -> Iterator[CheckFinding]:
    """Every model needs a version folder, and a Python model its code in it (T001)."""
    for model in view.models.values():
        if model.config is None:
            continue
        entries, fault = list_folder(model.folder)
        versions = sorted(
            (int(entry.name), entry) for entry in entries if _VERSION.fullmatch(entry.name) and is_folder(entry)
        )
        if fault or not versions:
            why = fault or "it has no version folder"
            yield CheckFinding(
                "version-folder",
                "error",
                model.file,
                None,
                f"{model.name}: {why}, {model.name}/1 is expected",
                "Triton loads no model without a folder named by a version number",
                f"Make the folder {model.name}/1"
                + ("." if model.config.backend == ENSEMBLE_PLATFORM else " and put the model's files there."),
            )
        elif model.config.backend == PYTHON_BACKEND:
            yield from _check_code(model, versions[-1][1])


def _check_code(model: ModelView, version: os.DirEntry[str]) -> Iterator[CheckFinding]:
    named = model.lines.find("default_model_filename")
    name = (named[0].value if named else None) or _MODEL_FILE
    file = f"{model.name}/{version.name}/{name}"
    path = Path(version.path) / name
    try:
        about = path.stat()
        fault = "" if stat.S_ISREG(about.st_mode) else "is no regular file"
        fault = fault or ("" if about.st_size else "is empty")
    except (OSError, ValueError) as error:
        is_missing = isinstance(error, FileNotFoundError)
        fault = "missing" if is_missing else "cannot be read"
    if fault:
        yield CheckFinding(
            "model-file",
            "error",
            file,
            None,
            f"{file} {fault}",
            "the model's process dies at once, and Triton waits for it without an error and never gets ready",
            f"Put the model's code into {file}.",
        )


def check_permissions(view: RepositoryView) -> Iterator[CheckFinding]:
    """Files and folders that nobody may read, and what is neither file nor folder."""
    for model in view.models.values():
        for number, (path, relative) in enumerate(_walk(model.folder, model.name)):
            if number >= _MAX_FILES:
                yield _unlooked(model)
                break
            fault = _judge_entry(path)
            if fault is not None and (relative != model.file or model.text):  # that file was reported when it was read
                yield CheckFinding(
                    "file-unreadable",
                    "warning",
                    relative,
                    None,
                    f"{relative} {fault}",
                    "Triton and the model's code run as their own user and have to read it",
                    f"chmod a+rX {relative}"
                    if fault.kind is FaultKind.REFUSED
                    else f"Remove {relative}, or put a file there.",
                )


def _walk(folder: Path, name: str) -> Iterator[tuple[Path, str]]:
    """Yield what lies below a model's folder with its shown path; links are not followed, so there are no circles."""
    waiting = [(folder, name)]
    while waiting:
        parent, prefix = waiting.pop()
        for entry in list_folder(parent)[0]:
            relative = f"{prefix}/{shown(entry.name)}"
            yield Path(entry.path), relative
            if entry.name != "__pycache__" and not entry.is_symlink() and is_folder(entry):
                waiting.append((Path(entry.path), relative))


def _judge_entry(path: Path) -> ReadFault | None:
    """Root reads everything, so the mode is looked at, too."""
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        return ReadFault(FaultKind.MISSING, "is a link that leads nowhere")
    except OSError as error:
        return ReadFault(FaultKind.SPECIAL, f"cannot be looked at ({error.strerror})")
    if stat.S_ISDIR(mode):
        wanted, needed = stat.S_IRUSR | stat.S_IXUSR, os.R_OK | os.X_OK
    elif stat.S_ISREG(mode):
        wanted, needed = stat.S_IRUSR, os.R_OK
    else:
        return ReadFault(FaultKind.SPECIAL, "is neither a file nor a folder")
    if mode & wanted != wanted or not os.access(path, needed):
        return ReadFault(FaultKind.REFUSED, f"gives no permission to read it (mode {stat.S_IMODE(mode):03o})")
    return None


def _unlooked(model: ModelView) -> CheckFinding:
    return CheckFinding(
        "too-many-files",
        "note",
        model.name,
        None,
        f"{model.name} has more than {_MAX_FILES} files; only these were looked at",
        "a model's folder holds a few files, and Triton watches all of them when it polls",
        "Keep data elsewhere.",
    )


RULES = (check_names, check_backends, check_version_folders, check_permissions)
