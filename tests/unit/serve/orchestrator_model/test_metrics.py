"""What the metrics say of requests."""

import threading

import pytest

from trt_spec.serve.contract import ORCHESTRATOR_FAILED, TARGET_FAILED

from .fake_triton import FakeRequest, counts_of, metrics_of


def test_metrics_are_the_sums_of_the_answers(triton, start):
    model, requests = start(), [FakeRequest("a"), FakeRequest("b"), FakeRequest("a", num_draft_tokens=0)]
    for request in requests:
        model.execute([request])
    counts = [counts_of(request.wait()) for request in requests]
    metrics = metrics_of(triton, 3)
    drafted, accepted, rounds = map(sum, zip(*counts, strict=True))
    assert drafted > 0
    assert metrics["trtspec_draft_tokens_total"] == drafted
    assert metrics["trtspec_accepted_draft_tokens_total"] == accepted
    assert metrics["trtspec_draft_rounds_total"] == rounds
    assert metrics["trtspec_output_tokens_total"] == 18
    assert metrics["trtspec_requests_total", "answered"] == 3
    assert len(metrics["trtspec_acceptance_length"]) == rounds
    assert sum(metrics["trtspec_acceptance_length"]) == accepted + rounds
    assert (metrics["trtspec_running_requests"], metrics["trtspec_waiting_requests"]) == (0, 0)


def test_metrics_show_who_waits_and_who_is_turned_away(triton, start):
    gate = threading.Event()

    def engine(model, ids, n, drafts):
        gate.wait()
        return [1] * n

    triton.engine = engine
    requests = [FakeRequest("a") for _ in range(10)]
    start(max_inflight_requests=2, max_queue_requests=3).execute(requests)
    for refused in requests[5:]:
        refused.wait()
    waiting = metrics_of(triton, 5, others=5)
    gate.set()
    for served in requests[:5]:
        served.wait()
    ended = metrics_of(triton, 10)
    assert (waiting["trtspec_running_requests"], waiting["trtspec_waiting_requests"]) == (2, 3)
    assert (ended["trtspec_running_requests"], ended["trtspec_waiting_requests"]) == (0, 0)
    assert ended["trtspec_requests_total", "queue_full"] == 5
    assert ended["trtspec_requests_total", "answered"] == 5


@pytest.mark.parametrize(
    ("engine", "inputs", "outcome", "failures", "words"),
    [
        (lambda *call: "broken", {"num_draft_tokens": 0}, "engine_failed", 0, f"{TARGET_FAILED}: broken"),
        (lambda *call: 1 / 0, {"num_draft_tokens": 0}, "failed", 0, f"{ORCHESTRATOR_FAILED}: division by zero"),
        (lambda *call: [], {"max_tokens": 1000}, "invalid", 0, "max_tokens is 1000"),
        (lambda model, *_: "broken" if model == "draft" else [], {}, "answered", 1, None),
    ],
)
def test_every_end_of_a_request_is_counted_once(triton, start, engine, inputs, outcome, failures, words):
    """And told by the words that clients know it by."""
    request, triton.engine = FakeRequest("a", **inputs), engine
    start().execute([request])
    error = request.wait().error()
    assert error is None if words is None else error.message().startswith(words)
    metrics = metrics_of(triton, 1)
    assert {key[1]: value for key, value in metrics.items() if key[0] == "trtspec_requests_total"} == {outcome: 1}
    assert metrics.get("trtspec_draft_failures_total", 0) == failures


def test_a_running_request_is_counted_while_it_runs(triton, start, monkeypatch):
    monkeypatch.setattr("trt_spec.serve.metrics.FLUSH_S", 0.0)
    seen, engine = [], triton.engine

    def watching(model, ids, n, drafts):
        seen.append(triton.MetricFamily.values.get(("trtspec_draft_rounds_total", ""), 0))
        return engine(model, ids, n, drafts)

    request, triton.engine = FakeRequest("a"), watching
    start().execute([request])
    rounds = counts_of(request.wait())[2]
    assert seen[-1] == rounds - 1 > 0
    assert metrics_of(triton, 1)["trtspec_draft_rounds_total"] == rounds


def test_a_stream_is_timed_to_its_first_words_and_to_its_end(triton, start):
    model, stream, whole = start(decoupled=True), FakeRequest("a", stream=True), FakeRequest("a")
    for request in (stream, whole):
        model.execute([request])
        request.wait()
    metrics = metrics_of(triton, 2)
    assert len(stream.responses) >= 3
    assert len(metrics["trtspec_first_text_seconds"]) == 1
    assert len(metrics["trtspec_request_seconds"]) == 2
    assert metrics["trtspec_first_text_seconds"][0] <= metrics["trtspec_request_seconds"][0]
