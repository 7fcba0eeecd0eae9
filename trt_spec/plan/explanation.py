"""One derived value of a plan, and where it comes from."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Explanation:
    """``value`` as the plan has it, ``formula`` with the numbers of this plan, ``source`` of the rule."""

    field: str
    value: str
    formula: str
    source: str
