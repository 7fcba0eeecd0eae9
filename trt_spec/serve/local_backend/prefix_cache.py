"""KV caches of recent sequences: a call that resends a known sequence costs only its new tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from .engine import Engine, KvCache

ABANDON_TOKENS = 64
"""A cache that goes this much beyond the shared prefix belongs to another conversation: copy, do not cut it."""


@dataclass
class CachedSequence:
    """A cache and the ids whose keys and values it holds, one position each."""

    cache: KvCache
    ids: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    used_at: int = 0


class PrefixCache:
    """At most ``capacity`` sequences, the least recently used one is given up for a new one."""

    def __init__(self, engine: Engine, capacity: int) -> None:
        self._engine = engine
        self._capacity = capacity
        self._sequences: list[CachedSequence] = []
        self._clock = 0

    def acquire(self, ids: Sequence[int]) -> tuple[CachedSequence, int]:
        """A sequence to run ``ids`` on and how many of its first tokens need not be fed again.

        At least the last token of ``ids`` is left to feed: its logits are wanted.
        """
        wanted = np.asarray(ids, np.int64)
        shared = {id(s): min(common_prefix(s.ids, wanted), len(wanted) - 1) for s in self._sequences}
        best = max(self._sequences, key=lambda s: (shared[id(s)], s.used_at), default=None)
        best_shared = shared[id(best)] if best is not None else 0
        if best is not None and best_shared and len(best.ids) - best_shared <= ABANDON_TOKENS:
            return self._use(best, best_shared)
        sequence = self._free_sequence(keep=best if best_shared else None)
        if sequence is None:
            assert best is not None
            return self._use(best, best_shared)
        if best is not None and best_shared:
            sequence.cache.copy_prefix(best.cache, best_shared)
            sequence.ids = best.ids[:best_shared]
        else:
            sequence.ids = sequence.ids[:0]
        return self._use(sequence, best_shared)

    def _use(self, sequence: CachedSequence, tokens: int) -> tuple[CachedSequence, int]:
        self._clock += 1
        sequence.used_at = self._clock
        return sequence, tokens

    def _free_sequence(self, *, keep: CachedSequence | None) -> CachedSequence | None:
        """A new sequence while there is room, else the least recently used; None if only ``keep`` is left."""
        if len(self._sequences) < self._capacity:
            self._sequences.append(CachedSequence(self._engine.new_cache()))
            return self._sequences[-1]
        return min((s for s in self._sequences if s is not keep), key=lambda s: s.used_at, default=None)


def common_prefix(a: NDArray[np.int64], b: NDArray[np.int64]) -> int:
    """Length of the longest common prefix of two id sequences."""
    n = min(len(a), len(b))
    different = np.flatnonzero(a[:n] != b[:n])
    return int(different[0]) if len(different) else n
