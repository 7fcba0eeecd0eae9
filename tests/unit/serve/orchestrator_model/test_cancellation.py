"""Clients that leave, and a server that stops."""

import threading
import time

from trt_spec.serve.contract import CANCELLED, SERVER_STOPPING

from .fake_triton import FakeRequest, TritonError, metrics_of, text_of


def test_a_cancelled_request_ends_within_a_round(triton, start):
    calls = []

    def engine(model, ids, n, drafts):
        calls.append(model)
        request.cancelled = True
        request.seen_cancelled.wait(10)
        return [len(ids) % 300 + i for i in range(n)]

    request, triton.engine = FakeRequest("a"), engine
    start().execute([request])
    error = request.wait().error()
    assert (error.code, error.message()) == (TritonError.CANCELLED, CANCELLED)
    assert calls == ["draft"]  # nobody waits for what the target would make of it


def test_a_request_that_is_cancelled_while_it_waits_leaves_at_once(triton, start):
    gate = threading.Event()

    def engine(model, ids, n, drafts):
        gate.wait()
        return [1] * n

    triton.engine = engine
    running, waiting = FakeRequest("a"), FakeRequest("a")
    start(max_inflight_requests=1).execute([running, waiting])
    waiting.cancelled = True
    assert waiting.wait().error().code == TritonError.CANCELLED
    assert not running.done.is_set()
    gate.set()
    assert text_of(running.wait())


def test_a_cancelled_request_leaves_what_it_drafted_in_the_metrics(triton, start):
    engine = triton.engine

    def cancelling(model, ids, n, drafts):
        request.cancelled = model == "target"
        if request.cancelled:
            request.seen_cancelled.wait(10)
        return engine(model, ids, n, drafts)

    request, triton.engine = FakeRequest("a"), cancelling
    start().execute([request])
    request.wait()
    metrics = metrics_of(triton, 1)
    assert (metrics["trtspec_draft_tokens_total"], metrics["trtspec_draft_rounds_total"]) == (2, 1)
    assert metrics["trtspec_requests_total", "cancelled"] == 1
    assert metrics["trtspec_running_requests"] == 0


def test_triton_is_never_asked_for_a_request_that_it_has_freed(start, monkeypatch):
    class SlowlySent(FakeRequest):
        def send(self, *response, **flags):
            super().send(*response, **flags)
            time.sleep(0.02)

    monkeypatch.setattr("trt_spec.serve.waiting_client.LOOK_S", 0.001)
    model, requests = start(), [SlowlySent("a") for _ in range(3)]
    model.execute(requests)
    for request in requests:
        request.wait()
    time.sleep(0.1)
    assert not any(request.asked_too_late for request in requests)


def test_a_server_that_stops_right_behind_an_answer_says_nothing_more(start):
    class SlowlySent(FakeRequest):
        def send(self, *response, **flags):
            super().send(*response, **flags)
            time.sleep(0.1)

    model, request = start(), SlowlySent("a")
    model.execute([request])
    text = text_of(request.wait())
    model.finalize()
    assert text == text_of(request.responses[-1])
    assert not request.ended_twice
    model.finalize = lambda: None  # it is ended: the fixture has nothing left to do


def test_finalize_answers_what_is_still_running(triton, start, never):
    triton.engine = never
    model, requests = start(), [FakeRequest("a") for _ in range(6)]
    model.execute(requests)
    time.sleep(0.05)
    model.finalize()
    for request in requests:
        assert request.wait().error().message() == SERVER_STOPPING
    model.finalize = lambda: None  # it is ended: the fixture has nothing left to do
