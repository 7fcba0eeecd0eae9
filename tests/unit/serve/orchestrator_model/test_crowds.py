"""Many requests at once: who waits, who is turned away, and what engines are told of company."""

import json
import threading
import time

import numpy as np

from trt_spec.serve.contract import QUEUE_FULL

from .fake_triton import FakeRequest, TritonError, counts_of, fell_back, text_of


def test_more_requests_than_slots_and_queue_are_turned_away_and_only_those(triton, start):
    gate = threading.Event()

    def engine(model, ids, n, drafts):
        gate.wait()
        return [1] * n

    triton.engine = engine
    requests = [FakeRequest("a") for _ in range(10)]
    model = start(max_inflight_requests=2, max_queue_requests=3)
    for request in requests:
        model.execute([request])
    for refused in requests[5:]:
        error = refused.wait().error()
        assert (error.code, QUEUE_FULL in error.message()) == (TritonError.UNAVAILABLE, True)
    assert not any(request.done.is_set() for request in requests[:5])
    gate.set()
    for served in requests[:5]:
        assert text_of(served.wait())
    later = FakeRequest("a")
    model.execute([later])
    assert text_of(later.wait())


def test_many_calls_wait_for_engines_at_the_same_time(triton, start):
    together = threading.Barrier(33)

    def engine(model, ids, n, drafts):
        together.wait(10)
        return []

    triton.engine = engine
    requests = [FakeRequest("a") for _ in range(33)]
    start(max_inflight_requests=64).execute(requests)
    time.sleep(0)
    for request in requests:
        request.wait()
    assert not together.broken


def test_a_request_that_others_came_with_is_not_planned_for_as_if_alone(triton, start):
    """The first one is on its way to the engines before the prompts of the others are read."""
    requests = [FakeRequest("a") for _ in range(3)]
    for request in requests:
        request.parameters_text = json.dumps({"trtspec_debug": True})
    start().execute(requests)
    for request in requests:
        request.wait()
    rounds = [json.loads(line.removeprefix("trtspec ")) for line in triton.lines if '"round"' in line]
    first = next(each for each in rounds if each["event"] == "round" and each["round"] == 1)
    assert first["running"] == 3


def test_requests_wait_for_room_in_the_caches(triton, start):
    gate = threading.Event()

    def engine(model, ids, n, drafts):
        gate.wait()
        return [1] * n

    triton.engine = engine
    requests = [FakeRequest("a") for _ in range(3)]
    # A prompt of one token, 6 of the answer and 2 drafted: two such requests fit the target, one fits the draft.
    model = start(max_inflight_tokens_target=20, max_inflight_tokens_draft=10)
    model.execute(requests)
    deadline = time.monotonic() + 5
    while triton.MetricFamily.values.get(("trtspec_waiting_requests", "")) != 2 and time.monotonic() < deadline:
        time.sleep(0.001)
    assert triton.MetricFamily.values["trtspec_running_requests", ""] == 1
    gate.set()
    assert all(text_of(request.wait()) for request in requests)


def test_a_request_larger_than_the_targets_cache_is_refused_and_asks_no_engine(triton, start):
    model, large, small = start(max_inflight_tokens_target=10), FakeRequest("a", max_tokens=10), FakeRequest("a")
    model.execute([large, small])
    error = large.wait().error()
    assert error.code == TritonError.INVALID_ARG
    assert "holds 10 tokens, this request may need 11" in error.message()
    assert text_of(small.wait())
    assert max(int(inputs["input_lengths"][0, 0]) for _, inputs in triton.calls) < 10


def test_a_request_larger_than_the_drafts_cache_goes_on_without_the_draft(triton, start):
    model = start(max_inflight_tokens_target=100, max_inflight_tokens_draft=10)
    large, small = FakeRequest("a", max_tokens=10), FakeRequest("a")
    model.execute([large])
    assert counts_of(large.wait()) == (0, 0, 0)
    assert {name for name, _ in triton.calls} == {"target"}
    assert not fell_back(large.responses[-1])
    model.execute([small])
    assert counts_of(small.wait()) == (4, 4, 2)


def test_a_draft_of_which_no_cache_is_told_may_always_draft(start):
    request = FakeRequest("a")
    start(max_inflight_tokens_target=100).execute([request])
    assert counts_of(request.wait()) == (4, 4, 2)


def test_live_prefixes_are_kept_where_the_engine_can_and_others_are_there(triton, start):
    engine, sent = triton.engine, {}
    for takes, count in (("false", 2), ("true", 1), ("true", 2)):
        together = threading.Barrier(count)

        def meeting(*call, together=together):
            together.wait(10)
            return engine(*call)

        triton.engine = meeting
        triton.calls.clear()
        requests = [FakeRequest("abc") for _ in range(count)]
        start(engine_takes_retention=takes).execute(requests)
        for request in requests:
            assert text_of(request.wait())
        sent[takes, count] = [inputs for _, inputs in triton.calls]
    crowded = sent.pop(("true", 2))
    assert not any(name.startswith("retention") for calls in sent.values() for inputs in calls for name in inputs)
    assert len(crowded) >= 8
    for inputs in crowded[2:]:  # the first call may have been sent when nobody else was there yet
        assert inputs["retention_token_range_ends"].tolist() == inputs["input_lengths"].tolist()
        assert inputs["retention_token_range_priorities"] > 35
        assert inputs["retention_decode_priority"].dtype == np.int32


def test_requests_never_share_a_tensor_and_keep_their_own_between_rounds(triton, start):
    together, engine = threading.Barrier(4), triton.engine

    def meeting(*call):
        together.wait(10)
        return engine(*call)

    triton.engine = meeting
    requests = [FakeRequest("a") for _ in range(4)]
    start().execute(requests)
    for request in requests:
        assert text_of(request.wait())
    assert triton.shared == []
    made = {id(tensor) for tensors in triton.sent for tensor in tensors if tensor.name() == "exclude_input_in_output"}
    assert len(made) == 2 * len(requests) < len(triton.sent)  # one for the draft's calls, one for the target's
