"""The graph against transformers' own logits, stored by tests/fixtures/make_reference.py."""

import numpy as np
import pytest

from trt_spec.serve.local_backend.engine import Engine
from trt_spec.serve.local_backend.feed import Piece

MODELS = (
    "llama-gqa",
    "llama-tied-rope3",
    "llama-headdim-bias",
    "llama-mlp-bias",
    "llama-sharded",
    "qwen2-bias",
    "qwen2-untied",
    "pair-target",
    "pair-draft",
)
TOLERANCE = 1e-4


@pytest.fixture(params=MODELS)
def model(request, tiny, build_tiny_engine):
    with np.load(tiny / request.param / "reference.npz") as reference:
        return build_tiny_engine(request.param), reference["input_ids"], reference["logits"]


def feed(engine, row, tokens, past, wanted=None):
    """Logits of the last ``wanted`` tokens (all by default) fed behind ``past``, as an array of their own."""
    (logits,) = engine.forward([Piece(row, past, tokens, len(tokens) if wanted is None else wanted)])
    engine.rows.rows[row].write(past, tokens)
    return logits.copy()


def test_one_pass_gives_the_reference_logits(model):
    folder, input_ids, expected = model
    engine = Engine(folder)
    for ids, rows in zip(input_ids, expected, strict=True):
        np.testing.assert_allclose(feed(engine, 1, ids.tolist(), 0), rows, atol=TOLERANCE)


def test_feeding_in_pieces_gives_the_same_logits(model):
    folder, input_ids, expected = model
    engine = Engine(folder)
    ids, past = input_ids[0].tolist(), 0
    for n in (1, 5, 1, 2, 8, 3, 28):
        logits = feed(engine, 2, ids[past : past + n], past)
        np.testing.assert_allclose(logits, expected[0][past : past + n], atol=TOLERANCE)
        past += n


def test_rejected_tokens_leave_no_trace(model):
    folder, input_ids, expected = model
    engine = Engine(folder)
    ids = input_ids[0].tolist()
    feed(engine, 0, [*ids[:10], 1, 2, 3, 4, 5], 0)
    np.testing.assert_allclose(feed(engine, 0, ids[10:20], 10), expected[0][10:20], atol=TOLERANCE)


def test_one_pass_takes_sequences_of_different_pasts_and_lengths(model):
    """Four rows, one of them idle, fed 1, 4 and 20 tokens behind 7, 20 and none."""
    folder, input_ids, expected = model
    engine = Engine(folder)
    feed(engine, 3, input_ids[0, :7].tolist(), 0)
    feed(engine, 0, input_ids[1, :20].tolist(), 0)
    given = [(3, 0, 7, 8), (0, 1, 20, 24), (2, 1, 0, 20)]
    pieces = [Piece(row, start, input_ids[text, start:end].tolist(), end - start) for row, text, start, end in given]
    for (_, text, start, end), logits in zip(given, engine.forward(pieces), strict=True):
        np.testing.assert_allclose(logits, expected[text, start:end], atol=TOLERANCE)


def test_only_the_wanted_rows_of_logits_are_computed(model):
    folder, input_ids, expected = model
    engine = Engine(folder)
    a, b = (input_ids[i, :5].tolist() for i in (0, 1))
    none, two = engine.forward([Piece(0, 0, a, 0), Piece(1, 0, b, 2)])
    assert none.shape == (0, engine.limits.vocab_size)
    np.testing.assert_allclose(two, expected[1][3:5], atol=TOLERANCE)


def test_caches_are_written_in_place(build_tiny_engine):
    """A copied cache would leave the bound memory as it was, and would cost what it holds in every step."""
    engine = Engine(build_tiny_engine("llama-gqa"))
    feed(engine, 1, [1, 2, 3], 0)
    block = engine._arena.blocks["key.0"]
    assert block[1, :, :3].any(axis=-1).all()
    assert not block[1, :, 3:].any() and not block[[0, 2, 3]].any()


def test_what_lies_behind_a_sequence_or_in_other_rows_reaches_nobody(model):
    """Numbers or not: rows are used again as they are, and rows without a piece lie between those of a pass."""
    folder, input_ids, expected = model
    engine = Engine(folder)
    for block in engine._arena.blocks.values():
        block[:] = np.nan
    for start, end in ((0, 9), (9, 10), (10, 14), (14, 40)):
        pieces = [Piece(row, start, input_ids[text, start:end].tolist(), end - start) for row, text in ((3, 0), (0, 1))]
        for text, logits in enumerate(engine.forward(pieces)):
            np.testing.assert_allclose(logits, expected[text, start:end], atol=TOLERANCE)
    assert all(np.isnan(block[[1, 2]]).all() for block in engine._arena.blocks.values())
