"""What `trtspec check` reports: one fault, where it stands, why it matters and what to type."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

CheckSeverity = Literal["error", "warning", "note"]
SEVERITIES: tuple[CheckSeverity, ...] = get_args(CheckSeverity)


@dataclass(frozen=True)
class Fix:
    """Line ``line`` (from 1) of the finding's file becomes ``after``; only where there is exactly one right answer."""

    line: int
    after: str  # without the line's end


@dataclass(frozen=True)
class CheckFinding:
    """One fault. ``file`` is relative to the checked path, with slashes; ``line`` counts from 1.

    ``error``: it will not start, or will answer wrongly; ``warning``: it may run, and surprise; ``note``: good to know.
    """

    code: str  # stable and in kebab-case: what CI filters by
    severity: CheckSeverity
    file: str
    line: int | None
    what: str
    why: str
    remedy: str
    fix: Fix | None = None
