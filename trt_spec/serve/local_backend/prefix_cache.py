"""KV caches of recent sequences: a call that resends a known sequence costs only its new tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from .engine import Engine, KvCache


@dataclass
class CachedSequence:
    """A cache, the ids whose keys and values it holds, one position each, and how many of them its last call sent."""

    cache: KvCache
    ids: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    sent_tokens: int = 0
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
        shared = {id(s): common_prefix(s.ids, wanted) for s in self._sequences}
        best = max(self._sequences, key=lambda s: (shared[id(s)], s.used_at), default=None)
        best_shared = shared[id(best)] if best is not None else 0
        if best is None or best_shared == 0:
            sequence = self._free_sequence(keep=None)
            assert sequence is not None
            sequence.ids = sequence.ids[:0]
        elif best_shared >= best.sent_tokens:
            # It holds all that its last call sent: this is the same text going on, so it goes on in place.
            sequence = best
        else:
            # It belongs to another text with the same beginning, and may go on itself: copy the beginning.
            sequence = self._free_sequence(keep=best) or best
            if sequence is not best:
                sequence.cache.copy_prefix(best.cache, best_shared)
                sequence.ids = best.ids[:best_shared]
        self._clock += 1
        sequence.used_at = self._clock
        sequence.sent_tokens = len(wanted)
        return sequence, min(best_shared, len(wanted) - 1)

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
