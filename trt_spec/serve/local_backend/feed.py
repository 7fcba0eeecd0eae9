"""From the pieces of several sequences to the inputs of one forward pass. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Piece:
    """``tokens`` to feed behind the first ``past`` positions of a row; logits of the last ``wanted`` of them."""

    row: int
    past: int
    tokens: Sequence[int]
    wanted: int


@dataclass(frozen=True)
class Feed:
    """Inputs of the graph by name, for the rows of the KV cache from ``first_row`` on."""

    first_row: int
    inputs: dict[str, NDArray[np.signedinteger[Any]]]


def render_feed(pieces: Sequence[Piece]) -> Feed:
    """The inputs that feed ``pieces``, each of another row, in one pass; see trt_spec.build.onnx.graph for the layout.

    Rows between the first and the last one that no piece names are fed nothing.
    """
    if len(pieces) == 1:
        return _render_one(pieces[0])
    rows = np.array([piece.row for piece in pieces])
    counts = np.array([len(piece.tokens) for piece in pieces])
    ends = np.cumsum(counts)
    first, most, total = int(rows.min()), int(counts.max()), int(ends[-1])
    packed = np.repeat((rows - first) * most, counts) + np.arange(total) - np.repeat(ends - counts, counts)
    span = int(rows.max()) - first + 1
    padded = np.zeros(span * most, np.int64)
    padded[packed] = np.arange(total)
    fed, last = np.zeros(span, np.int32), np.zeros(span, np.int32)
    fed[rows - first] = counts
    last[rows - first] = [piece.past + len(piece.tokens) - 1 for piece in pieces]
    wanted = np.concatenate([np.arange(end - piece.wanted, end) for piece, end in zip(pieces, ends, strict=True)])
    inputs = {
        "input_ids": np.array([token for piece in pieces for token in piece.tokens], np.int64),
        "padded_tokens": padded.reshape(span, most),
        "packed_tokens": packed,
        "query_seqlens": fed,
        "seqlens_k": last,
        "logits_rows": _at_least_one(wanted),
    }
    return Feed(first, inputs)


def _render_one(piece: Piece) -> Feed:
    """The same for a single piece, which most steps of a draft are."""
    count = len(piece.tokens)
    tokens = np.arange(count)
    inputs = {
        "input_ids": np.array(piece.tokens, np.int64),
        "padded_tokens": tokens[None],
        "packed_tokens": tokens,
        "query_seqlens": np.array([count], np.int32),
        "seqlens_k": np.array([piece.past + count - 1], np.int32),
        "logits_rows": _at_least_one(tokens[count - piece.wanted :]),
    }
    return Feed(piece.row, inputs)


def _at_least_one(wanted: NDArray[np.int64]) -> NDArray[np.int64]:
    """A pass without wanted rows still computes one: some kernels refuse an empty list."""
    return wanted if len(wanted) else np.zeros(1, np.int64)
