"""The graph against transformers' own logits, stored by tests/fixtures/make_reference.py."""

import numpy as np
import pytest

from trt_spec.serve.local_backend.engine import Engine

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


def test_one_pass_gives_the_reference_logits(model):
    folder, input_ids, expected = model
    engine = Engine(folder)
    for ids, rows in zip(input_ids, expected, strict=True):
        logits = engine.forward(engine.new_cache(), ids.tolist(), 0, range(len(ids)))
        np.testing.assert_allclose(logits, rows, atol=TOLERANCE)


def test_feeding_in_pieces_gives_the_same_logits(model):
    folder, input_ids, expected = model
    engine = Engine(folder)
    cache, ids, past = engine.new_cache(), input_ids[0].tolist(), 0
    for n in (1, 5, 1, 2, 8, 3, 28):
        logits = engine.forward(cache, ids[past : past + n], past, range(n))
        np.testing.assert_allclose(logits, expected[0][past : past + n], atol=TOLERANCE)
        past += n


def test_rejected_tokens_leave_no_trace(model):
    folder, input_ids, expected = model
    engine = Engine(folder)
    cache, ids = engine.new_cache(), input_ids[0].tolist()
    engine.forward(cache, [*ids[:10], 1, 2, 3, 4, 5], 0, [0])
    logits = engine.forward(cache, ids[10:20], 10, range(10))
    np.testing.assert_allclose(logits, expected[0][10:20], atol=TOLERANCE)


def test_a_ragged_batch_needs_no_other_graph(model):
    """Two sequences with pasts of 7 and 20 tokens, fed 4 and 2 more (padded) in one run."""
    folder, input_ids, expected = model
    engine = Engine(folder)
    limits, session, pasts, fed = engine.limits, engine.session, (7, 20), (4, 2)
    shape = (2, limits.kv_heads, 64, limits.head_size)
    caches = {name: np.zeros(shape, np.float32) for name in cache_names(engine)}

    def run(tokens, past, rows):
        feeds = {"input_ids": tokens, "past_tokens": np.array(past), "logits_rows": rows, **caches}
        names = [output.name for output in session.get_outputs()]
        outputs = dict(zip(names, session.run(names, feeds), strict=True))
        caches.update({name: outputs[f"new_{name}"] for name in caches})
        return outputs["logits"]

    run(input_ids[:, :20], [0, 0], np.zeros((2, 1), np.int64))
    tokens = np.zeros((2, 4), np.int64)
    for row, (past, n) in enumerate(zip(pasts, fed, strict=True)):
        tokens[row, :n] = input_ids[row, past : past + n]
    logits = run(tokens, pasts, np.tile(np.arange(4), (2, 1)))
    for row, (past, n) in enumerate(zip(pasts, fed, strict=True)):
        np.testing.assert_allclose(logits[row, :n], expected[row, past : past + n], atol=TOLERANCE)


def cache_names(engine):
    return [f"{kind}.{i}" for i in range(engine.limits.layers) for kind in ("key", "value")]


def test_caches_are_written_in_place(build_tiny_engine, capfd):
    """ONNX Runtime warns when it must copy a cache to update it."""
    engine = Engine(build_tiny_engine("llama-gqa"))
    cache = engine.new_cache()
    engine.forward(cache, [1, 2, 3], 0, [2])
    assert "TensorScatter" not in capfd.readouterr().err
    copied = {name: np.zeros((1, 2, 8, engine.limits.head_size), np.float32) for name in cache_names(engine)}
    feeds = {"input_ids": [[1]], "past_tokens": [0], "logits_rows": [[0]], **copied}
    engine.session.run(["logits", "new_key.0"], feeds)
    assert "TensorScatter" in capfd.readouterr().err
