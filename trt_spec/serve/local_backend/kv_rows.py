"""Which row of the KV cache holds which sequence, and what a new request can take over from it. Pure bookkeeping.

A row belongs to one running request at a time. When the request ends, the row stays as it is: a later call that resends
the sequence, as every round of speculation does, costs only its new tokens. Idle rows are given up for new sequences,
the least recently used one first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


class Row:
    """The ids whose keys and values a row holds, one position each."""

    def __init__(self, index: int, max_tokens: int) -> None:
        self.index = index
        self.length = 0
        self.sent_tokens = 0  # how many of them its last request sent
        self.used_at = 0
        self.is_running = False
        self._ids = np.zeros(max_tokens, np.int64)

    @property
    def ids(self) -> NDArray[np.int64]:
        return self._ids[: self.length]

    def write(self, past: int, tokens: Sequence[int] | NDArray[np.int64]) -> None:
        """Notes that ``tokens`` were fed behind the first ``past`` positions; what lay behind is gone."""
        self.length = past + len(tokens)
        self._ids[past : self.length] = tokens


@dataclass(frozen=True)
class Placement:
    """A row for a request; ``cached_tokens`` of its ids need not be fed. They lie in ``copy_from`` if that is given."""

    row: Row
    cached_tokens: int
    copy_from: Row | None = None


class KvRows:
    """``rows`` sequences of at most ``max_tokens`` each."""

    def __init__(self, rows: int, max_tokens: int) -> None:
        self.rows = [Row(index, max_tokens) for index in range(rows)]
        self._clock = 0

    @property
    def is_full(self) -> bool:
        """Whether all rows are running."""
        return all(row.is_running for row in self.rows)

    def acquire(self, ids: Sequence[int]) -> Placement:
        """A row for a request that sends ``ids``; ValueError while all are running (``is_full``).

        At least the last of ``ids`` is left to feed: its logits are wanted. The caller copies what ``copy_from`` says
        before the next step.
        """
        if self.is_full:
            raise ValueError("every row is running")
        wanted = np.asarray(ids, np.int64)
        shared = [common_prefix(row.ids, wanted) for row in self.rows]
        # The last token is fed in any case, so a row that holds it as well, of the same text asked before, is no better
        # than the text's own row.
        usable = [min(tokens, len(wanted) - 1) for tokens in shared]
        best = max(self.rows, key=lambda row: (usable[row.index], not row.is_running, row.used_at))
        # Every token of it was sent by its last request: this is the same text going on, so it goes on in place.
        # Otherwise it belongs to another text with the same beginning, which may go on itself: that is copied.
        goes_on = not best.is_running and 0 < shared[best.index] >= best.sent_tokens
        row = best if goes_on else self._free_row(keep=best if shared[best.index] else None) or best
        cached = usable[best.index]
        self._clock += 1
        row.used_at = self._clock
        row.sent_tokens = len(wanted)
        row.is_running = True
        row.write(0, wanted[:cached])
        return Placement(row, cached, best if row is not best and cached else None)

    def release(self, row: Row, *, keep: bool = True) -> None:
        """The request has ended; its tokens stay for the next one unless ``keep`` is false."""
        row.is_running = False
        if not keep:
            row.length = 0
        row.sent_tokens = min(row.sent_tokens, row.length)  # a cancelled prompt was not fed whole

    def _free_row(self, *, keep: Row | None) -> Row | None:
        """An empty row, else the least recently used idle one; None if only running ones and ``keep`` are left."""
        idle = [row for row in self.rows if not row.is_running and row is not keep]
        return min(idle, key=lambda row: (row.length > 0, row.used_at if row.length else 0, row.index), default=None)


def common_prefix(a: NDArray[np.int64], b: NDArray[np.int64]) -> int:
    """Length of the longest common prefix of two id sequences."""
    n = min(len(a), len(b))
    different = np.flatnonzero(a[:n] != b[:n])
    return int(different[0]) if len(different) else n
