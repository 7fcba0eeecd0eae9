"""Repositories that trtspec wrote: what was changed in them since."""

from __future__ import annotations

from collections.abc import Iterator

from trt_spec.deploy.check.finding import CheckFinding
from trt_spec.deploy.check.reading import FaultKind, look_at, shown
from trt_spec.deploy.check.view import RepositoryView
from trt_spec.deploy.ownership import MARKER_FILE
from trt_spec.deploy.repository import TOKENIZER_FOLDER
from trt_spec.util.files import digest_sha256

_REMEDY = "Write the repository again with `trtspec deploy`, or keep your changes in another folder."


def check_marker(view: RepositoryView) -> Iterator[CheckFinding]:
    """Every file that trtspec.json lists is there as it was written."""
    if view.marker is None:
        fault = look_at(view.root / MARKER_FILE)[1]
        if fault is None or fault.kind is not FaultKind.MISSING:
            what = f"{MARKER_FILE} {fault or 'is not what trtspec writes'}"
            yield CheckFinding("marker", "warning", MARKER_FILE, None, what, "it says who owns the folder", _REMEDY)
        return
    for name, recorded in view.marker["files"].items():
        if not isinstance(name, str) or name.startswith("/") or ".." in name.split("/"):
            continue  # nothing outside the repository is read
        path = view.root / name
        try:
            is_there = path.exists()
            is_same = path.is_file() and digest_sha256(path) == recorded
        except (OSError, ValueError):
            continue  # reported as unreadable
        if not is_there:
            what, why = f"{shown(name)} is missing", "the repository was written with it"
            yield CheckFinding("file-missing", "error", shown(name), None, what, why, _REMEDY)
        elif not is_same:
            what = f"{shown(name)} was changed since trtspec wrote it"
            why = "`trtspec deploy` will not replace a folder that somebody changed"
            is_read = name.endswith(".py") or f"/{TOKENIZER_FOLDER}/" in name
            yield CheckFinding("file-changed", "warning" if is_read else "note", shown(name), None, what, why, _REMEDY)


RULES = (check_marker,)
