"""Confidence intervals of ratios by the paired bootstrap. Pure.

Both sides answered the same prompts in the same order within each block, so pairs are drawn with replacement and both
means are taken over the same draw (Efron's percentile interval). What disturbs both sides alike cancels.
"""

from __future__ import annotations

from collections.abc import Sequence

from trt_spec.verify.results import Ratio

RESAMPLES = 4000
CONFIDENCE = 0.95


def bootstrap_ratio(
    a: Sequence[float],
    b: Sequence[float],
    *,
    seed: int,
    confidence: float = CONFIDENCE,
    resamples: int = RESAMPLES,
) -> Ratio | None:
    """mean(b) / mean(a) of paired values, None without a pair or with a mean of 0. The same for the same seed."""
    import numpy as np

    if len(a) != len(b):
        raise ValueError(f"{len(a)} and {len(b)} values are no pairs")
    if not a or sum(a) <= 0.0:
        return None
    left, right = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    draws = np.random.default_rng(seed).integers(0, len(a), size=(resamples, len(a)))
    bottoms = left[draws].mean(axis=1)
    ratios = right[draws].mean(axis=1)[bottoms > 0] / bottoms[bottoms > 0]
    tail = (1.0 - confidence) / 2
    low, high = (float(value) for value in np.quantile(ratios, (tail, 1.0 - tail)))
    return Ratio(
        value=float(right.mean() / left.mean()),
        low=low,
        high=high,
        confidence=confidence,
        samples=len(a),
        significant=len(a) > 1 and not low <= 1.0 <= high,
    )
