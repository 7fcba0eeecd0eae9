"""What planning found: a rule that a pair breaks, or something its owner should know."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from trt_spec.spec.model import Role

Severity = Literal["refuse", "warn", "note"]


@dataclass(frozen=True)
class Finding:
    """One result of a check. ``code`` is stable and documented; ``refuse`` means that the plan must not be built."""

    code: str
    severity: Severity
    message: str
    remedy: str = ""
    role: Role | None = None


def is_refused(findings: tuple[Finding, ...]) -> bool:
    """Whether any finding forbids the build."""
    return any(finding.severity == "refuse" for finding in findings)
