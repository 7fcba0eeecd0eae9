"""A spec file to a Spec, or one SpecError that lists every fault with its line."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from trt_spec.errors import SpecError
from trt_spec.spec.faults import judge_values
from trt_spec.spec.model import Model, Spec, Speculation
from trt_spec.spec.reference import judge_reference
from trt_spec.spec.rules import Fault, render_path
from trt_spec.spec.yaml_lines import Document, MalformedYamlError, compose_document
from trt_spec.util.text import printable

MAX_SPEC_BYTES = 256 * 1024  # a hundred times a long spec; PyYAML takes seconds for a megabyte

_SEE_PRESETS = "Start from a ready one with `trtspec init NAME`."
_CORRECT_LINES = "Correct what is listed and run the command again."


def load_spec(path: str | os.PathLike[str]) -> Spec:
    """The spec in the YAML (or JSON) file at ``path``, model folders made absolute.

    Relative folders count from the spec file, not from the current folder. Whether they exist is for the build to say.
    Raises SpecError with one line for each fault, ``file:line: field: what was found and what was expected``.
    """
    file = Path(path)
    text = _read_text(file)
    try:
        document = compose_document(text)
    except MalformedYamlError as error:
        raise SpecError(f"{file}:{error.line}: {error}.", remedy=_CORRECT_LINES) from None
    if document.data is None and not document.faults:
        raise SpecError(f"{file}:1: the file is empty, expected a spec.", remedy=_SEE_PRESETS)
    if not isinstance(document.data, dict):
        message = "found no keys, expected a spec with keys such as name, backend and target"
        raise SpecError(f"{file}:{document.line_of(())}: {message}.", remedy=_SEE_PRESETS)
    return resolve_spec(document, file)


def resolve_spec(document: Document, file: Path) -> Spec:
    """The spec in ``document``, read from ``file``, whose folder relative model folders count from."""
    spec, faults = judge_values(document.data)
    resolved = None
    if spec is not None:
        resolved, faults = _with_absolute_folders(spec, file.parent)
    listed = [*document.faults, *((document.line_of(fault.path), fault) for fault in faults)]
    if listed or resolved is None:
        raise _spec_error(file, listed)
    return resolved


def _spec_error(file: Path, listed: list[tuple[int, Fault]]) -> SpecError:
    lines = []
    for line, fault in sorted(listed, key=lambda pair: pair[0]):
        field = f"{printable(render_path(fault.path))}: " if fault.path else ""
        end = "" if fault.message.endswith("?") else "."
        lines.append(f"{file}:{line}: {field}{fault.message}{end}")
    return SpecError("\n".join(dict.fromkeys(lines)), remedy=_CORRECT_LINES)


def _with_absolute_folders(spec: Spec, folder: Path) -> tuple[Spec | None, tuple[Fault, ...]]:
    changed: dict[str, Any] = {}
    faults: list[Fault] = []
    named: tuple[tuple[str, Model | Speculation | None, str], ...] = (
        ("target", spec.target, "model"),
        ("draft", spec.draft, "model"),
        ("speculation", spec.speculation, "heads"),
    )
    for section, values, key in named:
        reference = None if values is None else getattr(values, key)
        if values is None or reference is None or judge_reference(reference) != "folder":
            continue
        expanded = os.path.expanduser(reference)  # noqa: PTH111 (pathlib raises for an unknown user)
        if expanded.startswith("~"):
            faults.append(Fault((section, key), f'found "{reference}", expected a user that has a home folder'))
            continue
        absolute = os.path.abspath(folder / expanded)  # noqa: PTH100 (resolve() would follow symbolic links)
        changed[section] = values.model_copy(update={key: absolute})
    return (None, tuple(faults)) if faults else (spec.model_copy(update=changed), ())


def _read_text(file: Path) -> str:
    if file.is_dir():
        raise SpecError(f"{file} is a folder, expected a spec file.", remedy="Name the YAML file in it.")
    if not file.exists():
        raise SpecError(f"There is no file {file}, expected a spec.", remedy=f"Check the path. {_SEE_PRESETS}")
    if not file.is_file():
        raise SpecError(f"{file} is a device or pipe, expected a spec file.", remedy="Save the spec to a file first.")
    try:
        with file.open("rb") as stream:
            raw = stream.read(MAX_SPEC_BYTES + 1)
    except OSError as error:
        reason = error.strerror or "unknown reason"
        raise SpecError(
            f"{file} cannot be read ({reason}), expected a readable file.", remedy="Check its permissions."
        ) from None
    if len(raw) > MAX_SPEC_BYTES:
        raise SpecError(
            f"{file} is larger than {MAX_SPEC_BYTES} bytes, expected a spec of a page.", remedy="Check the path."
        )
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise SpecError(
            f"{file}:{line}: found bytes that are not UTF-8 text.", remedy="Save the file as UTF-8."
        ) from None
