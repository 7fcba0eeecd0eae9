"""Drafts by n-gram lookup: what followed the last few tokens when they stood in the prompt or the output before.

Prompt lookup decoding (Saxena, 2023), also TensorRT-LLM's NGram drafting; it needs no model and no logits.
"""

from __future__ import annotations

from collections.abc import Sequence

LONGEST_NGRAM, SHORTEST_NGRAM = 3, 2
"""Longer matches are rarer and surer: they are looked for first."""


class NgramIndex:
    """Where each n-gram of a growing sequence was last continued. A token costs the same however long the sequence."""

    def __init__(self) -> None:
        self._ids: list[int] = []
        self._behind: dict[tuple[int, ...], int] = {}  # n-gram -> index of the token behind its latest occurrence

    def extend(self, ids: Sequence[int]) -> None:
        for token in ids:
            # The n-grams at the end get a continuation only now, so that none is ever found to continue itself.
            for ngram in self._endings():
                self._behind[ngram] = len(self._ids)
            self._ids.append(int(token))

    @property
    def has_match(self) -> bool:
        return self._match() is not None

    def propose(self, length: int) -> list[int]:
        """Up to ``length`` tokens; none without a match.

        A match whose continuation reaches the end of the sequence goes on with what it has proposed itself: the
        sequence repeats with that period.
        """
        start = self._match()
        if start is None:
            return []
        period = len(self._ids) - start
        return [self._ids[start + offset % period] for offset in range(length)]

    def _match(self) -> int | None:
        return next((found for ngram in self._endings() if (found := self._behind.get(ngram)) is not None), None)

    def _endings(self) -> list[tuple[int, ...]]:
        """The n-grams at the end of the sequence, the longest first."""
        longest = min(LONGEST_NGRAM, len(self._ids))
        return [tuple(self._ids[-length:]) for length in range(longest, SHORTEST_NGRAM - 1, -1)]
