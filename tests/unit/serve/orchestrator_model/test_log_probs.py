"""Log-probabilities: whose they are, and who gets them."""

import numpy as np
import pytest

from .fake_triton import FakeRequest, TritonError, text_of


def rows_for(new, vocab=320, padded=8, rows=0):
    """Logits whose largest is at each of ``new``, padded with what must not count."""
    logits = np.zeros((1, 1, len(new) + rows, vocab + padded), np.float32)
    logits[0, 0, np.arange(len(new)), new] = 3.0
    logits[..., vocab:] = 50.0
    return logits


@pytest.mark.parametrize("stream", [False, True])
def test_log_probs_come_from_logits_where_the_target_verifies(triton, start, stream):
    triton.more_outputs = lambda inputs, new: (
        {"generation_logits": rows_for(new, rows=2)} if "return_generation_logits" in inputs else {}
    )
    request = FakeRequest("a", return_log_probs=True, return_perf_metrics=True, stream=stream)
    start(decoupled=stream, log_probs="logits").execute([request])
    request.wait()
    expected = 3.0 - np.log(np.exp(3.0) + 319)
    count = 0
    for response in request.responses:
        ids = response.outputs["output_ids"].as_numpy()
        count += ids.size
        log_probs = response.outputs["output_log_probs"].as_numpy()
        assert log_probs.shape == (1, 1, ids.size) and log_probs.dtype == np.float32
        np.testing.assert_allclose(log_probs, expected, rtol=1e-5)
        np.testing.assert_allclose(response.outputs["cum_log_probs"].as_numpy(), [[count * expected]], rtol=1e-5)
    assert count == 6
    assert {model for model, inputs in triton.calls if "return_generation_logits" in inputs} == {"target"}


def test_log_probs_of_a_target_alone_are_its_own(triton, start):
    triton.more_outputs = lambda inputs, new: {"output_log_probs": np.full((1, 1, len(new) + 1), -0.5, np.float32)}
    request = FakeRequest("a", return_log_probs=True)
    start(log_probs="engine", tensorrt_llm_draft_model_name="", max_draft_len=0).execute([request])
    response = request.wait()
    text_of(response)
    assert response.outputs["output_log_probs"].as_numpy().tolist() == [[[-0.5] * 6]]
    assert response.outputs["cum_log_probs"].as_numpy().tolist() == [[-3.0]]


def test_log_probs_that_nobody_has_are_refused(start):
    request = FakeRequest("a", return_log_probs=True)
    start().execute([request])
    error = request.wait().error()
    assert error.code == TritonError.INVALID_ARG
    assert "return_log_probs is not supported here" in error.message()


def test_an_engine_that_keeps_its_log_probs_to_itself_is_named(triton, start):
    request = FakeRequest("a", return_log_probs=True)
    start(log_probs="logits").execute([request])
    assert "gave no generation_logits" in request.wait().error().message()


def test_who_does_not_ask_gets_no_log_probs(triton, start):
    request = FakeRequest("a")
    start(log_probs="logits").execute([request])
    assert "output_log_probs" not in request.wait().outputs
    assert not any("return_generation_logits" in inputs for _, inputs in triton.calls)
