"""Acceptance figures from what each round really drafted and accepted. Pure.

A round drafts d >= 0 tokens, the target keeps the first a of them (0 <= a <= d) and adds one token of its own.

    mean acceptance length     1 + accepted / rounds: tokens that one target call yields
    draft acceptance rate      accepted / drafted
    per-position rate i        of the rounds that drafted at least i tokens, the share that kept token i
    conditional rate i         of the rounds that reached token i (kept all before it), the share that kept it
    acceptance lengths         histogram: tokens a round yielded (1 + a) -> rounds
    alpha                      accepted / (accepted + rounds ended by a rejection)

alpha is the maximum-likelihood estimate of the per-token acceptance probability of Leviathan et al. (arXiv 2211.17192),
whose a is a geometric variable truncated at d: a round that keeps all d tokens tells d successes, every other one a
successes and one failure. accepted / drafted is not alpha: it sinks as d grows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from trt_spec.errors import VerifyFailed


@dataclass(frozen=True)
class Round:
    """Draft tokens proposed and kept in one draft-and-verify round, in tokens."""

    drafted: int
    accepted: int


@dataclass(frozen=True)
class Acceptance:
    """Figures over many rounds (module docstring); None where nothing was there to divide by."""

    rounds: int
    drafted: int
    accepted: int
    mean_acceptance_length: float | None
    draft_acceptance_rate: float | None
    alpha: float | None
    per_position_acceptance_rate: tuple[float, ...]
    per_position_conditional_rate: tuple[float | None, ...]
    acceptance_length_histogram: dict[int, int]


def measure_acceptance(rounds: Iterable[Round]) -> Acceptance:
    """Acceptance figures of the rounds. Raises VerifyFailed for counts that no orchestrator can mean."""
    seen = tuple(rounds)
    for item in seen:
        if not 0 <= item.accepted <= item.drafted:
            raise VerifyFailed(
                f"A round reports {item.accepted} accepted of {item.drafted} drafted tokens, which is impossible.",
                remedy="The orchestrator's counters are wrong: deploy the repository again with this trtspec.",
            )
    drafted = sum(item.drafted for item in seen)
    accepted = sum(item.accepted for item in seen)
    rejections = sum(item.accepted < item.drafted for item in seen)
    longest = max((item.drafted for item in seen), default=0)
    kept = [sum(item.accepted >= position for item in seen) for position in range(1, longest + 1)]
    offered = [sum(item.drafted >= position for item in seen) for position in range(1, longest + 1)]
    reached = [
        sum(item.drafted >= position and item.accepted >= position - 1 for item in seen)
        for position in range(1, longest + 1)
    ]
    return Acceptance(
        rounds=len(seen),
        drafted=drafted,
        accepted=accepted,
        mean_acceptance_length=1 + accepted / len(seen) if seen else None,
        draft_acceptance_rate=ratio(accepted, drafted),
        alpha=ratio(accepted, accepted + rejections),
        per_position_acceptance_rate=tuple(k / n for k, n in zip(kept, offered, strict=True)),
        per_position_conditional_rate=tuple(ratio(k, n) for k, n in zip(kept, reached, strict=True)),
        acceptance_length_histogram=dict(sorted(Counter(1 + item.accepted for item in seen).items())),
    )


def ratio(part: float, whole: float) -> float | None:
    """part / whole, or None when there is no whole."""
    return part / whole if whole else None
