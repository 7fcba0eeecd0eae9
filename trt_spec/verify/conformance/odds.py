"""How likely a count is: the exact binomial test that sampled probes are judged by."""

from __future__ import annotations

import math

RARE = 1e-4
"""Counts as unlikely as this are no accident: an endpoint that keeps a rule fails its probe once in 10,000 times."""


def binomial_p_value(count: int, trials: int, probability: float) -> float:
    """The probability of a count at most as likely as ``count`` in ``trials`` draws of ``probability`` (two-sided)."""
    if not 0 <= count <= trials or trials < 1:
        raise ValueError(f"{count} of {trials} is no count")
    if probability <= 0.0 or probability >= 1.0:
        return 1.0 if count == (trials if probability >= 1.0 else 0) else 0.0
    masses = [_log_mass(k, trials, probability) for k in range(trials + 1)]
    limit = masses[count] + 1e-9  # equal masses on the other side are rounded differently
    return min(1.0, sum(math.exp(mass) for mass in masses if mass <= limit))


def _log_mass(count: int, trials: int, probability: float) -> float:
    ways = math.lgamma(trials + 1) - math.lgamma(count + 1) - math.lgamma(trials - count + 1)
    return ways + count * math.log(probability) + (trials - count) * math.log1p(-probability)
