"""The command that goes on from here, as a user can paste it."""

from __future__ import annotations

import shlex
from pathlib import Path


def next_command(verb: str, spec: Path, workspace: Path | None) -> str:
    """``trtspec VERB`` for the same spec and, if one was named, the same workspace."""
    words = ["trtspec", verb, str(spec), *(() if workspace is None else ("-o", str(workspace)))]
    return shlex.join(words)
