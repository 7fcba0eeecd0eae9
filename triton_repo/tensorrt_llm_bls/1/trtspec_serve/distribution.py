"""Probabilities of tokens, and drawing one."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray


class Random(Protocol):
    """Where draws come from: numpy's Generator, or a test's own."""

    def random(self) -> float: ...


def softmax(logits: NDArray[np.float32]) -> NDArray[np.float64]:
    """Probabilities of ``logits`` of the same shape [n]."""
    exact = logits.astype(np.float64)  # float32 overflows between the largest and the least
    weights = np.exp(exact - exact.max())
    return np.asarray(weights / weights.sum(), np.float64)


def draw(weights: NDArray[np.float64], random: Random) -> int:
    """An index with a probability in proportion to its weight; never one of weight 0."""
    cumulative = np.cumsum(weights)
    drawn = int(np.searchsorted(cumulative, random.random() * cumulative[-1], side="right"))
    # A number just below 1 may round to the whole sum.
    return drawn if drawn < len(weights) else int(np.flatnonzero(weights)[-1])
