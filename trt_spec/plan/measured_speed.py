"""The speed-up that measured step times and a measured acceptance lead to, by the plan's formula. Pure.

    S(B, g) = E(g) * T_plain(B) / (T_draft(B, g) + T_verify(B, g) + overhead)

B requests in flight, g drafted tokens, E the expected tokens of a round (``acceptance_model``). T_plain is the time of
one token of the target alone, T_draft that of a draft call for g tokens, T_verify that of the target's call which
verifies them. ``trt_spec.plan.speed`` has the same formula over predicted times.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from trt_spec.plan.acceptance_model import expected_tokens, expected_tokens_of_rates


@dataclass(frozen=True)
class MeasuredSteps:
    """Seconds of each kind of step with ``batch`` requests in flight; ``draft_s`` and ``verify_s`` by drafted tokens.

    Lengths between the measured ones are interpolated, longer ones follow the last two.
    """

    batch: int
    plain_token_s: float
    draft_s: dict[int, float]
    verify_s: dict[int, float]
    overhead_s: float = 0.0

    def round_s(self, draft_len: int) -> float:
        """Seconds of one round of ``draft_len`` drafted tokens, of the target alone at 0."""
        if draft_len == 0:
            return self.plain_token_s
        return interpolate(self.draft_s, draft_len) + interpolate(self.verify_s, draft_len) + self.overhead_s


def predict_speedup(rates: Sequence[float], steps: MeasuredSteps, draft_len: int) -> float:
    """Gain over the target alone while tokens are generated, prompts left out; exactly 1 at length 0.

    ``rates`` are the measured conditional rates by position; positions beyond them repeat the last one. Raises
    ValueError without a rate.
    """
    return tokens_of_round(rates, draft_len) * steps.plain_token_s / steps.round_s(draft_len)


def tokens_of_round(rates: Sequence[float], draft_len: int) -> float:
    """Expected tokens of a round of ``draft_len`` drafted tokens."""
    if not rates:
        raise ValueError("no acceptance was measured")
    if len(rates) == 1:
        return expected_tokens(rates[0], draft_len)
    return expected_tokens_of_rates([rates[min(position, len(rates) - 1)] for position in range(draft_len)])


def interpolate(values: Mapping[int, float], at: int) -> float:
    """The value at ``at`` of a line through the nearest two known ones; one alone is taken for all.

    Raises ValueError without one. Never below the smallest known value: measured times scatter.
    """
    if not values:
        raise ValueError("no time was measured")
    known = sorted(values)
    if at in values or len(known) == 1:
        return values[at] if at in values else values[known[0]]
    right = next((index for index, place in enumerate(known) if place > at), len(known) - 1)
    low, high = known[max(right, 1) - 1], known[max(right, 1)]
    slope = (values[high] - values[low]) / (high - low)
    return max(values[low] + slope * (at - low), min(values.values()))
