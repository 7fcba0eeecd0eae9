"""Paths that survive the shell through which Triton starts its Python processes, unquoted."""

from __future__ import annotations

import re
from pathlib import Path

from trt_spec.errors import SpecError
from trt_spec.util.text import encodable

# ASCII letters and digits, for Python inside Triton reads paths as ASCII, and punctuation that means nothing to a shell
# inside a word.
_PLAIN = re.compile(r"[\w./+@%=:,-]+", re.ASCII)


def is_plain(text: str) -> bool:
    """Whether a shell takes ``text`` for one word that stands for itself."""
    return _PLAIN.fullmatch(text) is not None


def check_path(path: Path) -> None:
    """Raise SpecError for a path with bytes that are no UTF-8: no configuration or script could name it."""
    if encodable(str(path)) != str(path):
        raise SpecError(
            f"The path {encodable(str(path))} holds bytes that are no UTF-8, and the files of a deployment name it.",
            remedy="Choose another workspace with -o.",
        )


def link_plain_path(path: Path, workspace: Path, link_name: str) -> str:
    """Return a way to write ``path`` that a shell leaves alone, for a process whose working directory is ``workspace``.

    The absolute path where it is plain, else the one relative to ``workspace``, else a link made there.
    """
    path, workspace = path.absolute(), workspace.absolute()
    if is_plain(str(path)):
        return str(path)
    if path.is_relative_to(workspace) and is_plain(str(path.relative_to(workspace))):
        return str(path.relative_to(workspace))
    link = workspace / link_name
    if link.is_symlink():
        link.unlink()
    elif link.exists():
        raise SpecError(f"{link} is in the way.", remedy="Move it elsewhere, or choose another workspace with -o.")
    link.symlink_to(path)
    return link_name
