"""Choosing a token from logits, with the parameters and defaults of TensorRT-LLM's sampling layers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Sampling:
    """``top_k`` 0 and ``top_p`` 0 mean "not set"; with neither set, or temperature 0, decoding is greedy."""

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 0.0
    seed: int = 0

    def __post_init__(self) -> None:
        if not self.temperature >= 0.0:
            raise ValueError(f"temperature is {self.temperature}, expected 0 or more")
        if self.top_k < 0:
            raise ValueError(f"top_k is {self.top_k}, expected 0 (not set) or more")
        if not 0.0 <= self.top_p <= 1.0:
            raise ValueError(f"top_p is {self.top_p}, expected 0 (not set) to 1")

    @property
    def is_greedy(self) -> bool:
        return self.top_k == 1 or self.temperature == 0.0 or (self.top_k == 0 and self.top_p == 0.0)


class Sampler:
    """Draws the tokens of one engine call; the seed's stream starts anew with each call, as in the C++ engine."""

    def __init__(self, sampling: Sampling) -> None:
        self._sampling = sampling
        self._random = None if sampling.is_greedy else np.random.Generator(np.random.Philox(sampling.seed))

    def choose(self, logits: NDArray[np.float32]) -> int:
        """A token id from ``logits`` [vocab_size]; greedy takes the smallest id among equals."""
        if self._random is None:
            return int(logits.argmax())
        cumulative = np.cumsum(probabilities(logits, self._sampling))
        return int(np.searchsorted(cumulative, self._random.random() * cumulative[-1], side="right"))


def probabilities(logits: NDArray[np.float32], sampling: Sampling) -> NDArray[np.float64]:
    """The distribution [vocab_size] that sampling draws from: temperature, then top-k, then top-p."""
    scaled = logits.astype(np.float64) / sampling.temperature
    kept = np.exp(scaled - scaled.max())
    if 0 < sampling.top_k < len(kept):
        threshold = np.partition(logits, -sampling.top_k)[-sampling.top_k]
        dropped = logits < threshold
        ties = np.flatnonzero(logits == threshold)
        dropped[ties[sampling.top_k - np.count_nonzero(logits > threshold) :]] = True
        kept[dropped] = 0.0
    kept /= kept.sum()
    if 0.0 < sampling.top_p < 1.0:
        order = np.argsort(-kept, kind="stable")
        before = np.cumsum(kept[order]) - kept[order]
        kept[order[before >= sampling.top_p]] = 0.0
        kept /= kept.sum()
    return np.asarray(kept, np.float64)
