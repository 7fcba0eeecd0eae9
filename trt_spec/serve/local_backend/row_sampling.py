"""Choosing the tokens of many rows of logits at once; the same draws as ``trt_spec.serve.sampling.Sampler``, faster."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..sampling import Sampling, probabilities

TOP_K_CANDIDATES = 1024
"""Up to so many, top-k looks at nothing else."""

NUCLEUS_DEPTHS = (6.0, 12.0)
"""Top-p looks at tokens whose logits over temperature are at most so far below the best, before it sorts them all."""


class RowSampler:
    """Draws the tokens of one request; the seed's stream starts anew with each, as in the C++ engine."""

    def __init__(self, sampling: Sampling) -> None:
        self._sampling = sampling
        self._random = None if sampling.is_greedy else np.random.Generator(np.random.Philox(sampling.seed))

    def choose(self, logits: NDArray[np.float32], greedy: NDArray[np.int64]) -> list[int]:
        """A token for each row of ``logits`` [n, vocab_size], whose largest entries are at ``greedy`` [n]."""
        if self._random is None:
            return [int(token) for token in greedy]
        draws = self._random.random(len(logits))
        return [self._draw(row, float(draw)) for row, draw in zip(logits, draws, strict=True)]

    def _draw(self, logits: NDArray[np.float32], draw: float) -> int:
        tokens, weights = candidates(logits, self._sampling)
        cumulative = np.cumsum(weights)
        return int(tokens[np.searchsorted(cumulative, draw * cumulative[-1], side="right")])


def candidates(logits: NDArray[np.float32], sampling: Sampling) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Ids, ascending, that sampling can draw from ``logits`` [vocab_size], with weights that need not sum to one."""
    size = len(logits)
    top_k = min(sampling.top_k or size, size)
    if top_k <= TOP_K_CANDIDATES < size:
        ids = _likeliest(logits, top_k)
        kept = _softmax(logits[ids], sampling.temperature)
        return ids, _cut_nucleus(kept, kept.sum(), sampling.top_p)
    if top_k < size or not 0.0 < sampling.top_p < 1.0:
        whole = probabilities(logits, sampling)
        return np.arange(size), whole
    below_top = (logits - logits.max()) / np.float32(sampling.temperature)
    total = float(np.exp(below_top).sum(dtype=np.float64))
    for depth in NUCLEUS_DEPTHS:
        ids = np.flatnonzero(below_top > -depth)
        kept = _softmax(logits[ids], sampling.temperature)
        # The candidates are the likeliest tokens, so if they have the mass, the nucleus is among them.
        if kept.sum() > sampling.top_p * total * (1 + 1e-6):
            return ids, _cut_nucleus(kept, total, sampling.top_p)
    return np.arange(size), probabilities(logits, sampling)


def _likeliest(logits: NDArray[np.float32], count: int) -> NDArray[np.int64]:
    """The ``count`` largest entries, ascending by id; of equals at the edge those with the smallest ids."""
    threshold = np.partition(logits, len(logits) - count)[len(logits) - count]
    above = np.flatnonzero(logits > threshold)
    ties = np.flatnonzero(logits == threshold)[: count - len(above)]
    return np.sort(np.concatenate([above, ties]))


def _softmax(logits: NDArray[np.float32], temperature: float) -> NDArray[np.float64]:
    """Unnormalised weights relative to the largest."""
    scaled = logits.astype(np.float64) / temperature
    return np.asarray(np.exp(scaled - scaled.max()), np.float64)


def _cut_nucleus(weights: NDArray[np.float64], total: float, top_p: float) -> NDArray[np.float64]:
    """Zeroes all but the likeliest entries that together reach ``top_p`` of ``total``."""
    if not 0.0 < top_p < 1.0:
        return weights
    order = np.argsort(-weights, kind="stable")
    before = (np.cumsum(weights[order]) - weights[order]) / total
    weights[order[before >= top_p]] = 0.0
    return weights
