"""How pieces are laid out for a pass."""

import pytest

from trt_spec.serve.local_backend.feed import Piece, render_feed


def test_the_layout_of_a_pass():
    feed = render_feed([Piece(4, 7, [40, 41], 1), Piece(2, 3, [20], 1)])
    assert feed.first_row == 2
    given = {name: values.tolist() for name, values in feed.inputs.items()}
    assert given == {
        "input_ids": [40, 41, 20],
        "padded_tokens": [[2, 0], [0, 0], [0, 1]],
        "packed_tokens": [4, 5, 0],
        "query_seqlens": [1, 0, 2],
        "seqlens_k": [3, 0, 8],
        "logits_rows": [1, 2],
    }


@pytest.mark.parametrize("wanted", [0, 1, 3])
def test_a_lone_piece_is_laid_out_as_among_others(wanted):
    alone = render_feed([Piece(3, 7, [40, 41, 42], wanted)])
    assert alone.first_row == 3
    given = {name: values.tolist() for name, values in alone.inputs.items()}
    assert given == {
        "input_ids": [40, 41, 42],
        "padded_tokens": [[0, 1, 2]],
        "packed_tokens": [0, 1, 2],
        "query_seqlens": [3],
        "seqlens_k": [9],
        "logits_rows": {0: [0], 1: [2], 3: [0, 1, 2]}[wanted],
    }
    beside = render_feed([Piece(3, 7, [40, 41, 42], wanted), Piece(4, 0, [1], 1)])
    assert {name: values.dtype for name, values in alone.inputs.items()} == {
        name: values.dtype for name, values in beside.inputs.items()
    }
