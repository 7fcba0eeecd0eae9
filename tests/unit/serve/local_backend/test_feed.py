"""How pieces are laid out for a pass."""

import numpy as np

from trt_spec.serve.local_backend.feed import SHORT_PIECE_TOKENS, Piece, plan_passes, render_feed


def test_short_pieces_share_a_pass_and_long_ones_have_their_own():
    lengths = (1, 300, SHORT_PIECE_TOKENS, SHORT_PIECE_TOKENS + 1, 5)
    pieces = [Piece(row, 0, [0] * length, 1) for row, length in enumerate(lengths)]
    assert plan_passes(pieces, SHORT_PIECE_TOKENS) == [[0, 2, 4], [1], [3]]
    assert plan_passes(pieces, SHORT_PIECE_TOKENS + 1) == [[0, 2, 3, 4], [1]]
    assert plan_passes(pieces[1:2], SHORT_PIECE_TOKENS) == [[0]]


def test_the_layout_of_a_pass():
    feed = render_feed([Piece(4, 7, [40, 41], 1), Piece(2, 3, [20], 1)], kv_heads=1)
    assert feed.first_row == 2
    given = {name: values.tolist() for name, values in feed.inputs.items()}
    assert given == {
        "input_ids": [40, 41, 20],
        "positions": [[7, 8, 3]],
        "cache_entries": [[[2, 0, 7]], [[2, 0, 8]], [[0, 0, 3]]],
        "padded_tokens": [[2, 0], [0, 0], [0, 1]],
        "packed_tokens": [4, 5, 0],
        "past_tokens": [3, 0, 7],
        "logits_rows": [1, 2],
    }
    assert all(values.dtype == np.int64 for values in feed.inputs.values())
