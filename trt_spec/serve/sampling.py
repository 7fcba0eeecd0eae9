"""Choosing a token from logits, with the parameters and defaults of TensorRT-LLM's sampling layers."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .distribution import draw, softmax
from .log_probs import token_log_probs
from .logit_rules import NEUTRAL_RULES, LogitRules, TokenIds, apply_rules

_SMALL_NUCLEUS = 1024
"""Most nuclei of top-p are smaller; sorting no more than these is many times faster than sorting a vocabulary."""


@dataclass(frozen=True)
class Sampling:
    """``top_k`` 0 and ``top_p`` 0 mean "not set"; with neither set, or temperature 0, decoding is greedy.

    Where top-p samples alone, it becomes max(top_p * ``top_p_decay``, ``top_p_min``) with every token of a call.
    Source: TensorRT-LLM cpp/tensorrt_llm/layers/topPSamplingLayer.cu and samplingTopPKernels.cu (computeToppDecay).
    """

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 0.0
    seed: int = 0
    rules: LogitRules = field(default=NEUTRAL_RULES)
    top_p_decay: float = 1.0
    top_p_min: float = 1e-6

    def __post_init__(self) -> None:
        if not 0.0 <= self.temperature < math.inf:
            raise ValueError(f"temperature is {self.temperature}, expected 0 or more")
        if self.top_k < 0:
            raise ValueError(f"top_k is {self.top_k}, expected 0 (not set) or more")
        if not 0.0 <= self.top_p <= 1.0:
            raise ValueError(f"top_p is {self.top_p}, expected 0 (not set) to 1")
        for name in ("top_p_decay", "top_p_min"):
            if not 0.0 < getattr(self, name) <= 1.0:
                raise ValueError(f"{name} is {getattr(self, name)}, expected more than 0 and at most 1")

    @property
    def is_greedy(self) -> bool:
        return self.top_k == 1 or self.temperature == 0.0 or (self.top_k == 0 and self.top_p == 0.0)

    @property
    def changes_top_p(self) -> bool:
        """Whether top-p becomes another one behind the first token of a call."""
        # Below the least top-p nothing but the first token is left, before and behind it.
        unchanged = max(self.top_p, Sampling.top_p_min)
        return self.top_k == 0 < self.top_p and max(self.top_p * self.top_p_decay, self.top_p_min) != unchanged

    @property
    def divisor(self) -> float:
        """What logits are divided by: the temperature, also for a greedy choice, where penalties come behind it."""
        return self.temperature or 1.0


class Sampler:
    """Draws the tokens of one engine call; the seed's stream starts anew with each call, as in the C++ engine.

    ``output_start`` is the length of the call's input; ``end_id`` is what a minimum length keeps away.
    """

    def __init__(self, sampling: Sampling, output_start: int = 0, end_id: int | None = None) -> None:
        self._sampling = sampling
        self._output_start = output_start
        self._end_id = end_id
        self._top_p = sampling.top_p
        self.random = np.random.Generator(np.random.Philox(sampling.seed))

    @property
    def takes_largest(self) -> bool:
        """Whether the largest logit is the choice, whatever was said before."""
        return self._sampling.is_greedy and self._sampling.rules.is_neutral

    def adjust(self, logits: NDArray[np.float32], ids: TokenIds) -> NDArray[np.float32]:
        """The logits [vocab_size] behind ``ids`` as sampling sees them; ``ids`` do not matter to neutral rules."""
        sampling = self._sampling
        return apply_rules(logits, sampling.rules, sampling.divisor, ids, self._output_start, self._end_id)

    def choose(self, logits: NDArray[np.float32], ids: TokenIds = ()) -> int:
        """The token behind ``ids`` from its ``logits`` [vocab_size]; greedy takes the smallest id among equals."""
        return int(logits.argmax()) if self.takes_largest else self.draw(self.adjust(logits, ids))

    def draw(self, adjusted: NDArray[np.float32]) -> int:
        """The token from logits that were adjusted."""
        if self._sampling.is_greedy:
            return int(adjusted.argmax())
        tokens, kept = candidates(adjusted, self._sampling.top_k, self._top_p)
        if self._sampling.top_k == 0:
            self._top_p = max(self._top_p * self._sampling.top_p_decay, self._sampling.top_p_min)
        return int(tokens[draw(kept, self.random)])

    def log_probs(self, logits: NDArray[np.float32], ids: TokenIds, token: int) -> tuple[float, float]:
        """Log-probability of the ``token`` chosen behind ``ids``, and the log mass of what top-k sampling kept."""
        return self.log_probs_of(self.adjust(logits, ids), token)

    def log_probs_of(self, adjusted: NDArray[np.float32], token: int) -> tuple[float, float]:
        """The same from logits that were adjusted."""
        return token_log_probs(adjusted, token, 1 if self._sampling.is_greedy else self._sampling.top_k)

    def distribution(self, logits: NDArray[np.float32], ids: TokenIds) -> NDArray[np.float64]:
        """The probabilities [vocab_size] of the token behind ``ids``; greedy decoding gives one token all of it."""
        return self.distribution_of(logits if self.takes_largest else self.adjust(logits, ids))

    def distribution_of(self, adjusted: NDArray[np.float32]) -> NDArray[np.float64]:
        """The same from logits that were adjusted."""
        full = np.zeros(len(adjusted), np.float64)
        if self._sampling.is_greedy:
            full[adjusted.argmax()] = 1.0
        else:
            tokens, kept = candidates(adjusted, self._sampling.top_k, self._sampling.top_p)
            full[tokens] = kept
        return full


def candidates(
    adjusted: NDArray[np.float32], top_k: int, top_p: float
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """The tokens that sampling draws from, in rising order, and their probabilities: top-k, then top-p of the rest.

    ``adjusted`` [vocab_size] is already divided by the temperature. Among equals the smallest ids are kept.
    """
    size = len(adjusted)
    tokens = _largest(adjusted, top_k) if 0 < top_k < size else np.arange(size)
    kept = softmax(adjusted[tokens])
    if 0.0 < top_p < 1.0:
        inside = _nucleus(kept, top_p)
        tokens, kept = tokens[inside], kept[inside] / kept[inside].sum()
    return tokens, kept


def _largest(values: NDArray[np.floating[Any]], count: int) -> NDArray[np.int64]:
    """Indices of the ``count`` largest values, rising; of equal ones at the border the first."""
    threshold = np.partition(values, -count)[-count]
    above = np.flatnonzero(values > threshold)
    ties = np.flatnonzero(values == threshold)[: count - len(above)]
    return np.sort(np.concatenate([above, ties]))


def _nucleus(kept: NDArray[np.float64], top_p: float) -> NDArray[np.int64]:
    """Indices, rising, of the likeliest tokens that together reach ``top_p``; the first is always in."""
    if len(kept) > _SMALL_NUCLEUS:
        likeliest = _largest_stable(kept, _SMALL_NUCLEUS)
        if kept[likeliest].sum() < top_p:
            likeliest = np.argsort(-kept, kind="stable")
    else:
        likeliest = np.argsort(-kept, kind="stable")
    before = np.cumsum(kept[likeliest]) - kept[likeliest]
    return np.sort(likeliest[before < top_p])


def _largest_stable(kept: NDArray[np.float64], count: int) -> NDArray[np.int64]:
    """Indices of the ``count`` largest, the largest first, equals in rising order."""
    chosen = _largest(kept, count)
    order = np.argsort(-kept[chosen], kind="stable")
    return np.asarray(chosen[order], np.int64)
