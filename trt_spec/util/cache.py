"""Where trtspec keeps what it downloaded or derived and can make again."""

from __future__ import annotations

import os
from pathlib import Path

CACHE_VARIABLE = "TRTSPEC_CACHE"


def resolve_cache_dir() -> Path:
    """Return $TRTSPEC_CACHE, else $XDG_CACHE_HOME/trtspec, else ~/.cache/trtspec; absolute, not created here."""
    if own := os.environ.get(CACHE_VARIABLE):
        return Path(own).expanduser().absolute()
    shared = os.environ.get("XDG_CACHE_HOME", "")
    # The XDG specification: a relative path in this variable is invalid and ignored.
    base = Path(shared) if Path(shared).is_absolute() else Path.home() / ".cache"
    return base / "trtspec"
