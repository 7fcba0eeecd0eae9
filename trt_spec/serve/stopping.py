"""Stop words as sequences of token ids, and the flat layout in which Triton carries them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

StopWords = tuple[tuple[int, ...], ...]


def find_stop(tokens: Sequence[int], start: int, stop_words: StopWords) -> int | None:
    """Length of ``tokens`` up to and including the first stop word that is completed at or after index ``start``.

    A stop word may begin before ``start``: it then spans two rounds of speculation, or prompt and output.
    """
    for end in range(start + 1, len(tokens) + 1):
        for word in stop_words:
            if len(word) <= end and tuple(tokens[end - len(word) : end]) == word:
                return end
    return None


def pack_stop_words(stop_words: StopWords) -> NDArray[np.int32]:
    """int32 [2, n]: all ids one after the other, and below them the end of each word, padded with -1."""
    flat = [token for word in stop_words for token in word]
    ends = np.cumsum([len(word) for word in stop_words]).tolist()
    packed = np.full((2, len(flat)), -1, np.int32)
    packed[0] = flat
    packed[1, : len(ends)] = ends
    return packed


def unpack_stop_words(packed: NDArray[np.int32]) -> StopWords:
    """The inverse of ``pack_stop_words``; raises ValueError for another shape or for ends that do not rise."""
    if packed.ndim != 2 or packed.shape[0] != 2:
        raise ValueError(f"shape {list(packed.shape)}, expected [2, n]")
    ends = [int(end) for end in packed[1] if end >= 0]
    if not ends:
        return ()
    starts = [0, *ends[:-1]]
    if any(start >= end for start, end in zip(starts, ends, strict=True)) or ends[-1] > packed.shape[1]:
        raise ValueError(f"word ends {ends}, expected rising ends of at most {packed.shape[1]}")
    return tuple(tuple(int(t) for t in packed[0, start:end]) for start, end in zip(starts, ends, strict=True))
