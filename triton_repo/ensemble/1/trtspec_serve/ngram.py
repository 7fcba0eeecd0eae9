"""Drafts without a model: what followed the last words when they stood there before (prompt lookup).

Sources: Saxena, "Prompt Lookup Decoding" (2023); TensorRT-LLM's n-gram mode (examples/ngram) matches the same way, the
longest pattern first and its latest place.
"""

from __future__ import annotations

from collections.abc import Sequence

MAX_PATTERN_TOKENS = 4
MIN_PATTERN_TOKENS = 2
"""One equal token says little about the next: patterns of one would draft all the time, and wrongly."""


class NgramLookup:
    """An index over one growing sequence; adding a token and looking one up cost the same, however long it is."""

    def __init__(self, ids: Sequence[int] = ()) -> None:
        self._ids: list[int] = []
        # Where each pattern last ended, without the one that the sequence ends with now: it has no continuation.
        self._ends: dict[tuple[int, ...], int] = {}
        self.extend(ids)

    def extend(self, ids: Sequence[int]) -> None:
        """Adds what was said; the patterns that end before each new token get it as their continuation."""
        for token in ids:
            for size in self._sizes():
                self._ends[tuple(self._ids[-size:])] = len(self._ids)
            self._ids.append(token)

    def propose(self, max_tokens: int) -> list[int]:
        """At most ``max_tokens`` ids that followed the longest pattern found; empty where nothing repeats."""
        for size in reversed(self._sizes()):
            start = self._ends.get(tuple(self._ids[-size:]))
            if start is not None:
                return self._ids[start : start + max_tokens]
        return []

    def _sizes(self) -> range:
        return range(MIN_PATTERN_TOKENS, min(MAX_PATTERN_TOKENS, len(self._ids)) + 1)
