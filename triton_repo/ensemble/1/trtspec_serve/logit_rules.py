"""What a request changes about the logits before a token is chosen, in the order of TensorRT-LLM's decoding layers.

Source: TensorRT-LLM cpp/tensorrt_llm/kernels/penaltyKernels.cu (bias, temperature, repetition, presence, frequency,
minimum length; prompt and output count alike) and banBadWords.cu.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

MASKED = np.float32(np.finfo(np.float32).min)
"""What stands for "never": finite, as in the engine, so that a row of nothing else still has a softmax."""


@dataclass(frozen=True, eq=False)
class LogitRules:
    """``min_tokens`` counts the tokens behind the input of one engine call; ``bad_words`` are sequences of token ids.

    ``embedding_bias`` is float32 [vocab_size], added to the logits; None adds nothing.
    """

    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    min_tokens: int = 0
    bad_words: tuple[tuple[int, ...], ...] = ()
    embedding_bias: NDArray[np.float32] | None = None

    def __post_init__(self) -> None:
        if not (0.0 < self.repetition_penalty < math.inf):
            raise ValueError(f"repetition_penalty is {self.repetition_penalty}, expected more than 0")
        for name in ("presence_penalty", "frequency_penalty"):
            if not math.isfinite(getattr(self, name)):
                raise ValueError(f"{name} is {getattr(self, name)}, expected a number")
        if self.min_tokens < 0:
            raise ValueError(f"min_tokens is {self.min_tokens}, expected 0 or more")
        if any(not word for word in self.bad_words):
            raise ValueError("a bad word has no token")

    @property
    def counts_tokens(self) -> bool:
        """Whether what was said before matters to a token's logit."""
        return (self.repetition_penalty, self.presence_penalty, self.frequency_penalty) != (1.0, 0.0, 0.0)

    @property
    def is_neutral(self) -> bool:
        return not (self.counts_tokens or self.min_tokens or self.bad_words or self.embedding_bias is not None)


NEUTRAL_RULES = LogitRules()

TokenIds = Sequence[int] | NDArray[np.int32]


def apply_rules(
    logits: NDArray[np.float32],
    rules: LogitRules,
    temperature: float,
    ids: TokenIds,
    output_start: int,
    end_id: int | None,
) -> NDArray[np.float32]:
    """The logits [vocab_size] that sampling sees: biased, divided by ``temperature``, penalised and masked.

    ``ids`` is everything before the token that is chosen, ``output_start`` where the output begins in it. Greedy
    decoding passes temperature 1. Where ``rules`` are neutral, ``ids`` do not matter and may be left out.
    """
    if rules.is_neutral and temperature == 1.0:
        return logits
    changed = logits.astype(np.float32, copy=True)
    with np.errstate(over="ignore"):  # a tiny temperature or a huge bias
        if rules.embedding_bias is not None:
            changed += rules.embedding_bias
        if temperature != 1.0:
            changed /= np.float32(temperature)
        if rules.counts_tokens and len(ids):
            _penalise(changed, rules, ids)
    if rules.min_tokens and end_id is not None and len(ids) - output_start < rules.min_tokens:
        changed[end_id] = MASKED
    for word in rules.bad_words:
        *begun, last = word
        if last < len(changed) and (not begun or list(ids[-len(begun) :]) == begun):
            changed[last] = MASKED
    return np.clip(changed, MASKED, -MASKED, out=changed)  # what is infinite has no softmax


def _penalise(logits: NDArray[np.float32], rules: LogitRules, ids: TokenIds) -> None:
    said, counts = np.unique(np.asarray(ids), return_counts=True)
    values = logits[said]
    penalty = np.float32(rules.repetition_penalty)
    values = np.where(values < 0.0, values * penalty, values / penalty)
    less = np.float32(rules.presence_penalty) + np.float32(rules.frequency_penalty) * counts.astype(np.float32)
    logits[said] = _bounded(values) - _bounded(less)  # infinity less infinity is no number


def _bounded(values: NDArray[np.float32]) -> NDArray[np.float32]:
    return np.clip(values, MASKED, -MASKED)
