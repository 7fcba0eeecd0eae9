"""YAML files out of plain values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import yaml

LINE_WIDTH = 1000  # a folded query or command is harder to read than a long one


def render_yaml(document: Mapping[str, Any], about: str) -> str:
    """One document behind a comment of one line; keys in the given order."""
    return f"# {about}\n" + yaml.safe_dump(dict(document), sort_keys=False, width=LINE_WIDTH, allow_unicode=True)
