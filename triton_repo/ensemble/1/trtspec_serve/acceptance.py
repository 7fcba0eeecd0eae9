"""The acceptance rule: which drafted tokens the target keeps."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from .distribution import Random, draw, softmax


def accept_tokens(draft_ids: Sequence[int], choose: Callable[[int], int]) -> list[int]:
    """The tokens one verification yields: the accepted drafts, then one token of the target's own.

    ``choose(i)`` is the token the target picks after i accepted drafts, by its own sampling. Each drafted token is kept
    while the target would have picked it too; the first pick that differs takes its place, and if all agree the target
    adds one more (Leviathan et al., arXiv 2211.17192, with acceptance by equality as in TensorRT-LLM's external draft
    tokens without logits). Every token returned is the target's own pick, so its distribution is the target's.
    """
    picked: list[int] = []
    for drafted in draft_ids:
        picked.append(choose(len(picked)))
        if picked[-1] != drafted:
            return picked
    return [*picked, choose(len(picked))]


def accept_logits(
    draft_ids: Sequence[int],
    draft_logits: NDArray[np.float32],
    target: Callable[[int], NDArray[np.float64]],
    random: Random,
    threshold: float | None = None,
) -> list[int]:
    """The tokens one verification yields by modified rejection sampling (Leviathan et al., algorithm 1).

    ``draft_logits`` [n, vocab_size] are what the draft sampled from, so q is their softmax as it stands; ``target(i)``
    is p [vocab_size] behind i accepted drafts. A drafted token x is kept if p(x) > u q(x), u uniform in [0, 1) or the
    constant ``threshold``; the first one that is not is replaced by a draw from max(p - q, 0), and if all are kept the
    target adds one from p. With u uniform every token has the target's distribution (theorem 1); with a threshold it
    has not. Source: TensorRT-LLM externalDraftTokensKernels.cu.
    """
    picked: list[int] = []
    for drafted, row in zip(draft_ids, draft_logits, strict=True):
        p, q = target(len(picked)), softmax(row)
        u = random.random() if threshold is None else threshold
        if not p[drafted] > u * q[drafted]:
            residual = np.maximum(p - q, 0.0)
            # p below q everywhere is rounding alone: then the two are one distribution.
            return [*picked, draw(residual if residual.sum() > 0.0 else p, random)]
        picked.append(drafted)
    return [*picked, draw(target(len(picked)), random)]


def count_accepted(draft_ids: Sequence[int], new_ids: Sequence[int]) -> int:
    """How many drafted tokens stand at the front of what the target returned."""
    accepted = 0
    for drafted, kept in zip(draft_ids, new_ids, strict=False):
        if drafted != kept:
            break
        accepted += 1
    return accepted
