"""Folders that trtspec wrote carry a marker with the digest of every file, so replacing one destroys no other work."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from trt_spec import __version__
from trt_spec.deploy.check.reading import read_json_object
from trt_spec.errors import SpecError
from trt_spec.util.files import atomic_directory, digest_sha256

MARKER_FILE = "trtspec.json"  # Triton reads folders only at the top of a repository, so the file is invisible to it
_SHOWN_FILES = 3


def write_owned_folder(destination: Path, kind: str, texts: Mapping[str, str], about: Mapping[str, Any]) -> Path:
    """Write ``texts`` by relative path to the folder ``destination``, all or nothing, and return its absolute path.

    Scripts become executable. Raises SpecError where ``destination`` holds anything that trtspec did not write.
    """
    with owned_folder(destination, kind, about) as folder:
        write_texts(folder, texts)
    return destination.absolute()


@contextlib.contextmanager
def owned_folder(destination: Path, kind: str, about: Mapping[str, Any]) -> Iterator[Path]:
    """Give a folder to write into, which then gets its marker and replaces ``destination``; as write_owned_folder."""
    destination = destination.absolute()
    check_replaceable(destination, kind)
    with atomic_directory(destination) as folder:
        yield folder
        write_marker(folder, kind, about)


def write_texts(folder: Path, texts: Mapping[str, str]) -> None:
    """Write texts by their path below ``folder``; those that begin with #! become executable."""
    for name, text in texts.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
        if text.startswith("#!"):
            file.chmod(0o755)


def write_marker(folder: Path, kind: str, about: Mapping[str, Any]) -> None:
    """Record in ``folder`` that trtspec wrote it: ``kind``, ``about``, and the SHA-256 of every file. Comes last."""
    document = {
        "kind": kind,
        "trtspec": __version__,
        **about,
        "files": {name: digest_sha256(folder / name) for name in sorted(_list_files(folder))},
    }
    text = json.dumps(document, indent=1, ensure_ascii=False) + "\n"
    (folder / MARKER_FILE).write_text(text, encoding="utf-8")


def read_marker(folder: Path) -> dict[str, Any] | None:
    """Return the marker's document, None where there is none or it is not ours."""
    document, _ = read_json_object(folder / MARKER_FILE)
    return document if document is not None and isinstance(document.get("files"), dict) else None


def digest_owned(folder: Path) -> str:
    """SHA-256 over the names and digests of the files that a folder's marker records, "" without a marker.

    Equal digests are equal contents, whenever and by which deployment they were written.
    """
    marker = read_marker(folder)
    return "" if marker is None else hashlib.sha256(json.dumps(marker["files"], sort_keys=True).encode()).hexdigest()


def remove_owned_folder(folder: Path, kind: str) -> None:
    """Remove what trtspec wrote as ``kind``, if it is there. Raises SpecError as ``check_replaceable`` does."""
    check_replaceable(folder, kind)
    if folder.is_symlink():
        folder.unlink()
    elif folder.exists():
        shutil.rmtree(folder)


def check_replaceable(folder: Path, kind: str) -> None:
    """Raise SpecError unless ``folder`` is absent, empty, or holds exactly what trtspec wrote there as ``kind``."""
    if not folder.exists():
        if folder.is_symlink():
            raise SpecError(f"{folder} is a link that leads nowhere.", remedy="Delete the link, or mend it.")
        return
    if not folder.is_dir():
        raise SpecError(f"{folder} is a file, expected a folder.", remedy="Choose another workspace with -o.")
    if not any(folder.iterdir()):
        return
    marker = read_marker(folder)
    if marker is None or marker.get("kind") != kind:
        raise SpecError(
            f"{folder} has files in it and was not written by trtspec ({kind}).",
            remedy="Choose another workspace with -o, or move that folder away.",
        )
    changed = _find_changes(folder, marker["files"])
    if changed:
        more = f" and {len(changed) - _SHOWN_FILES} more" if changed[_SHOWN_FILES:] else ""
        shown = ", ".join(changed[:_SHOWN_FILES]) + more
        raise SpecError(
            f"{folder} was changed since trtspec wrote it: {shown}.",
            remedy="Keep your changes elsewhere and delete the folder, or choose another workspace with -o.",
        )


def _find_changes(folder: Path, recorded: Mapping[str, str]) -> list[str]:
    """A recorded file that is gone needs no protection, so it is no change."""
    return [
        name
        for name in sorted(_list_files(folder))
        if name not in recorded or not _is_as_recorded(folder / name, recorded[name])
    ]


def _is_as_recorded(file: Path, digest: str) -> bool:
    """Also False for what is no file any more; a pipe of that name would be read forever."""
    return file.is_file() and digest_sha256(file) == digest


def _list_files(folder: Path) -> Iterator[str]:
    """Yield the files below ``folder``, relative, without the marker and what Python compiles on its own."""
    for parent, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if name != "__pycache__"]
        for name in names:
            relative = Path(parent, name).relative_to(folder)
            if relative != Path(MARKER_FILE):
                yield relative.as_posix()
