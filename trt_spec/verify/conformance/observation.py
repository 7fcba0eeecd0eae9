"""What a probe saw of one rule."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Verdict = Literal["held", "differs", "not applicable"]


@dataclass(frozen=True)
class Observation:
    """``expected`` and ``seen`` are words for people, with the numbers that decided."""

    verdict: Verdict
    expected: str
    seen: str


class NotApplicable(Exception):
    """This endpoint cannot show the rule; the message says why."""


class CallFailed(Exception):
    """The endpoint refused a request that the rules grant, or answered it by something else; the message says what."""


def judge(holds: bool, expected: str, seen: str) -> Observation:
    """Held or differs."""
    return Observation("held" if holds else "differs", expected, seen)


def judge_ids(expected: Sequence[int], seen: Sequence[int], what: str) -> Observation:
    """Held if both are the same token ids; ``what`` says which they are."""
    return judge(list(expected) == list(seen), f"{what} {list(expected)}", str(list(seen)))


def join(observations: Sequence[Observation]) -> Observation:
    """One observation of several parts of a rule: the first that differs, or all of them."""
    for observation in observations:
        if observation.verdict == "differs":
            return observation
    return Observation(
        "held", "; ".join(part.expected for part in observations), "; ".join(part.seen for part in observations)
    )
