"""From the pieces of several sequences to the inputs of one forward pass. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

SHORT_PIECE_TOKENS = 16
"""Pieces up to this length, or up to all drafts and one more, share a pass. Attention pads every sequence's queries to
the longest piece: a chunk of 128 tokens and seven decoded ones took 1.7 to 2.4 times as long in one pass as in two,
though two read the weights twice."""


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
    inputs: dict[str, NDArray[np.int64]]


def plan_passes(pieces: Sequence[Piece], short_tokens: int) -> list[list[int]]:
    """Indices of the pieces of each forward pass; those of up to ``short_tokens`` share one."""
    short = [i for i, piece in enumerate(pieces) if len(piece.tokens) <= short_tokens]
    long = [[i] for i, piece in enumerate(pieces) if len(piece.tokens) > short_tokens]
    return ([short] if short else []) + long


def render_feed(pieces: Sequence[Piece], kv_heads: int) -> Feed:
    """The inputs that feed ``pieces``, each of another row, in one pass; see trt_spec.build.onnx.graph for the layout.

    Rows between the first and the last one that no piece names take part in attention without effect.
    """
    rows = np.array([piece.row for piece in pieces])
    pasts = np.array([piece.past for piece in pieces])
    counts = np.array([len(piece.tokens) for piece in pieces])
    ends = np.cumsum(counts)
    first, most, total = int(rows.min()), int(counts.max()), int(ends[-1])
    offsets = np.arange(total) - np.repeat(ends - counts, counts)
    positions = np.repeat(pasts, counts) + offsets
    row_of_token = np.repeat(rows - first, counts)
    span = int(rows.max()) - first + 1
    packed = row_of_token * most + offsets
    padded = np.zeros(span * most, np.int64)
    padded[packed] = np.arange(total)
    past_tokens = np.zeros(span, np.int64)
    past_tokens[rows - first] = pasts
    entries = np.empty((total, kv_heads, 3), np.int64)
    entries[:, :, 0] = row_of_token[:, None]
    entries[:, :, 1] = np.arange(kv_heads)
    entries[:, :, 2] = positions[:, None]
    wanted = [np.arange(end - piece.wanted, end) for piece, end in zip(pieces, ends, strict=True)]
    logits_rows = np.concatenate(wanted)
    return Feed(
        first,
        {
            "input_ids": np.array([token for piece in pieces for token in piece.tokens], np.int64),
            "positions": positions[None],
            "cache_entries": entries,
            "padded_tokens": padded.reshape(span, most),
            "packed_tokens": packed,
            "past_tokens": past_tokens,
            # A pass without wanted rows still computes one: some kernels refuse an empty list.
            "logits_rows": logits_rows if len(logits_rows) else np.zeros(1, np.int64),
        },
    )
