"""The orchestrator's Triton glue on a fake Python backend: what a real server cannot be made to do on demand."""

import json
import shutil
import sys
import threading
import time
import types

import numpy as np
import pytest

from trt_spec.serve.contract import CANCELLED, ORCHESTRATOR_FAILED, QUEUE_FULL, SERVER_STOPPING, TARGET_FAILED
from trt_spec.serve.draft_rest import FAILURES_BEFORE_REST
from trt_spec.serve.orchestrator_model import TritonPythonModel

FINAL = 1


class MetricFamily:
    """Counts what is done to its metrics in ``values`` of the module it belongs to, by name and outcome."""

    COUNTER, GAUGE, HISTOGRAM = range(3)

    def __init__(self, name, description, kind):
        self.name, self.description = name, description

    def Metric(self, labels, buckets=None):  # noqa: N802 - Triton's name
        return Metric(self.values, (self.name, labels.get("outcome", "")))


class Metric:
    def __init__(self, values, key):
        self.values, self.key = values, key

    def increment(self, value):
        self.values[self.key] = self.values.get(self.key, 0) + value

    def set(self, value):
        self.values[self.key] = value

    def observe(self, value):
        self.values.setdefault(self.key, []).append(value)


class Tensor:
    def __init__(self, name, values):
        self._name, self._values = name, values

    def name(self):
        return self._name

    def as_numpy(self):
        return self._values


class TritonError:
    INTERNAL, INVALID_ARG, UNAVAILABLE, CANCELLED = range(4)

    def __init__(self, message, code=INTERNAL):
        self._message, self.code = message, code

    def message(self):
        return self._message


class InferenceResponse:
    def __init__(self, output_tensors=(), error=None):
        self.outputs = {tensor.name(): tensor for tensor in output_tensors}
        self._error = error

    def has_error(self):
        return self._error is not None

    def error(self):
        return self._error


class FakeRequest:
    """A client's request that collects its responses."""

    def __init__(self, text, **inputs):
        given = {"text_input": np.array([[text.encode()]], np.object_), "max_tokens": np.array([[6]], np.int32)}
        given |= {name: np.array([[value]]) for name, value in inputs.items()}
        self._inputs = [Tensor(name, values) for name, values in given.items()]
        self.responses = []
        self.done = threading.Event()
        self.asked_too_late = False
        self.cancelled, self.seen_cancelled = False, threading.Event()
        self.parameters_text = "{}"

    def inputs(self):
        return self._inputs

    def parameters(self):
        return self.parameters_text

    def is_cancelled(self):
        self.asked_too_late |= self.done.is_set()
        if self.cancelled:
            self.seen_cancelled.set()
        return self.cancelled

    def get_response_sender(self):
        return self

    def send(self, response=None, flags=0):
        if response is not None:
            self.responses.append(response)
        if flags == FINAL:
            assert not self.done.is_set(), "two final responses"
            self.done.set()

    def wait(self):
        assert self.done.wait(10), "no answer"
        return self.responses[-1]


@pytest.fixture
def triton(monkeypatch):
    """A stand-in for triton_python_backend_utils; ``engine(model, ids, n, drafts)`` answers engine calls."""
    module = types.ModuleType("triton_python_backend_utils")
    module.Tensor, module.TritonError, module.InferenceResponse = Tensor, TritonError, InferenceResponse
    module.TRITONSERVER_RESPONSE_COMPLETE_FINAL = FINAL
    module.warnings, module.calls = [], []
    module.more_outputs = lambda inputs, new: {}
    module.lines = []
    module.Logger = types.SimpleNamespace(
        log_warn=module.warnings.append, log_error=module.warnings.append, log_info=module.lines.append
    )
    module.get_output_tensor_by_name = lambda response, name: response.outputs.get(name)

    class InferenceRequest:
        def __init__(self, model_name, requested_output_names, inputs):
            self.model, self.inputs = model_name, {tensor.name(): tensor.as_numpy() for tensor in inputs}

        def exec(self):
            ids = self.inputs["input_ids"][0].tolist()
            drafts = self.inputs.get("draft_input_ids", np.empty((1, 0), np.int32))[0].tolist()
            new = module.engine(self.model, ids, int(self.inputs["request_output_len"][0, 0]), drafts)
            if isinstance(new, str):
                return InferenceResponse(error=TritonError(new))
            module.calls.append((self.model, self.inputs))
            more = module.more_outputs(self.inputs, new)
            return InferenceResponse(
                [
                    Tensor("output_ids", np.array([[new]])),
                    Tensor("sequence_length", np.array([[len(new)]])),
                    *(Tensor(name, values) for name, values in more.items()),
                ]
            )

    module.InferenceRequest = InferenceRequest
    module.MetricFamily = type("MetricFamily", (MetricFamily,), {"values": {}})
    module.engine = lambda model, ids, n, drafts: [len(ids) % 300 + i for i in range(n)]
    monkeypatch.setitem(sys.modules, "triton_python_backend_utils", module)
    return module


@pytest.fixture
def never(monkeypatch):
    """An engine that answers when the test is over; calls that may never be answered are looked at often."""
    monkeypatch.setattr("trt_spec.serve.request_threads.LOOK_S", 0.01)
    gate = threading.Event()
    yield lambda *call: gate.wait() and []
    gate.set()


@pytest.fixture
def start(triton, tiny, tmp_path):
    """start(**parameters) -> an initialised model, finalized at the end of the test."""
    shutil.copytree(tiny / "tokenizer", tmp_path / "1" / "tokenizer")
    started = []

    def start(decoupled=False, **parameters):
        given = {
            "tensorrt_llm_model_name": "target",
            "tensorrt_llm_draft_model_name": "draft",
            "tokenizer_dir": "tokenizer",
            "engine_seed_name": "seed",
            "max_input_len": 64,
            "max_output_len": 60,
            "max_seq_len": 128,
            "max_draft_len": 2,
            "max_inflight_requests": 4,
            "max_queue_requests": 4,
            "vocab_size": 320,
            "draft_vocab_size": 312,
            "log_probs": "none",
            **parameters,
        }
        config = {
            "parameters": {name: {"string_value": str(value)} for name, value in given.items()},
            "input": [],
            "model_transaction_policy": {"decoupled": decoupled},
        }
        model = TritonPythonModel()
        args = {"model_name": "ensemble", "model_version": "1", "model_repository": str(tmp_path)}
        model.initialize({**args, "model_config": json.dumps(config)})
        started.append(model)
        return model

    yield start
    for model in started:
        model.finalize()


def text_of(response):
    assert not response.has_error(), response.error().message()
    return response.outputs["text_output"].as_numpy()[0].decode()


def counts_of(response):
    names = ("total_draft_tokens", "total_accepted_draft_tokens", "draft_rounds")
    return tuple(int(response.outputs[name].as_numpy()[0, 0]) for name in names)


def fell_back(response):
    return bool(response.outputs["draft_fallback"].as_numpy()[0, 0])


def test_an_answer_counts_what_was_drafted_and_accepted(start):
    request = FakeRequest("a")
    start().execute([request])
    assert counts_of(request.wait()) == (4, 4, 2)
    assert len(request.responses) == 1


def test_a_target_that_drafts_inside_is_not_said_to_draft_nothing(start, triton):
    model = start(tensorrt_llm_draft_model_name="", max_draft_len=0, draft_vocab_size=0, engine_drafts="true")
    request = FakeRequest("a", return_perf_metrics=True)
    model.execute([request])
    told = request.wait()
    assert text_of(told)
    assert sorted(told.outputs) == ["output_ids", "text_output"]
    assert {name for name, _ in triton.calls} == {"target"}


def test_b042_what_an_engine_pads_behind_its_answer_is_no_text(triton, start):
    whole, request = FakeRequest("a"), FakeRequest("a")
    model = start()
    model.execute([whole])
    expected = text_of(whole.wait())
    triton.more_outputs = lambda inputs, new: {"output_ids": np.array([[[*new, *[7] * 9]]])}
    model.execute([request])
    assert text_of(request.wait()) == expected


def test_b038_engines_are_told_end_and_padding(triton, start):
    for end_id in (None, 7):
        request = FakeRequest("a", **({} if end_id is None else {"end_id": end_id}))
        start().execute([request])
        request.wait()
        inputs = dict(triton.calls)
        assert inputs.keys() == {"target", "draft"}
        for sent in inputs.values():
            assert sent["end_id"].tolist() == sent["pad_id"].tolist() == [[315 if end_id is None else end_id]]


def test_b007_engines_are_asked_to_leave_the_prompt_out(triton, start):
    request = FakeRequest("a")
    start().execute([request])
    request.wait()
    assert {model for model, _ in triton.calls} == {"target", "draft"}
    assert all(inputs["exclude_input_in_output"].tolist() == [[True]] for _, inputs in triton.calls)
    first_verification = next(inputs for model, inputs in triton.calls if model == "target")
    assert first_verification["draft_input_ids"].size > 0


def test_a_stream_sends_a_response_a_round(start):
    request, whole = FakeRequest("a", stream=True), FakeRequest("a")
    model = start(decoupled=True)
    model.execute([request])
    request.wait()
    model.execute([whole])
    assert "".join(map(text_of, request.responses)) == text_of(whole.wait())
    assert len(request.responses) >= 3


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


def test_a_failing_draft_leaves_the_answer_to_the_target(triton, start):
    calls = []

    def engine(model, ids, n, drafts):
        calls.append(model)
        return "out of memory" if model == "draft" else [len(ids) % 300 + i for i in range(n)]

    whole, request = FakeRequest("a"), FakeRequest("a")
    model = start()
    model.execute([whole])
    expected = text_of(whole.wait())
    triton.engine = engine
    model.execute([request])
    assert text_of(request.wait()) == expected
    assert counts_of(request.responses[-1]) == (0, 0, 0)
    assert fell_back(request.responses[-1])
    assert not fell_back(whole.responses[-1])
    assert calls == ["draft", "target"]  # the rest in one plain call
    assert len(triton.warnings) == 1
    assert "out of memory" in triton.warnings[0]


def test_a_failing_target_is_the_clients_to_know_and_nobody_elses(triton, start):
    failing = FakeRequest("a")
    model = start()
    engine, triton.engine = triton.engine, lambda *call: "no such model"
    model.execute([failing])
    assert "no such model" in failing.wait().error().message()
    triton.engine = engine
    following = FakeRequest("a")
    model.execute([following])
    assert text_of(following.wait())


def test_an_unforeseen_failure_is_an_error_response(triton, start):
    request = FakeRequest("a")
    triton.engine = lambda *call: 1 / 0
    start().execute([request])
    assert "division by zero" in request.wait().error().message()


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


def test_finalize_answers_what_is_still_running(triton, start, never):
    triton.engine = never
    model, requests = start(), [FakeRequest("a") for _ in range(6)]
    model.execute(requests)
    time.sleep(0.05)
    model.finalize()
    for request in requests:
        assert request.wait().error().message() == SERVER_STOPPING
    model.finalize = lambda: None  # it is ended: the fixture has nothing left to do


def test_without_a_draft_model_the_target_answers_alone(start):
    request = FakeRequest("a")
    start(tensorrt_llm_draft_model_name="", max_draft_len=0).execute([request])
    assert counts_of(request.wait()) == (0, 0, 0)


def metrics_of(triton, ended):
    """Values by metric name, and by name and outcome where there is one, once ``ended`` requests are counted."""
    values, deadline = triton.MetricFamily.values, time.monotonic() + 5
    while sum(value for key, value in values.copy().items() if key[0] == "trtspec_requests_total") < ended:
        assert time.monotonic() < deadline, values
        time.sleep(0.001)
    return {key[0] if key[1:] == ("",) else key: value for key, value in values.items()}


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
    waiting = metrics_of(triton, 5)
    gate.set()
    for served in requests[:5]:
        served.wait()
    ended = metrics_of(triton, 10)
    assert (waiting["trtspec_running_requests"], waiting["trtspec_waiting_requests"]) == (2, 3)
    assert (ended["trtspec_running_requests"], ended["trtspec_waiting_requests"]) == (0, 0)
    assert ended["trtspec_requests_total", "queue_full"] == 5
    assert ended["trtspec_requests_total", "answered"] == 5


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


def test_a_draft_engine_that_hangs_is_given_up_and_one_that_keeps_failing_is_left_alone(
    triton, start, monkeypatch, never
):
    monkeypatch.setattr("trt_spec.serve.triton_engines.DRAFT_LIMIT_S", 0.05)
    asked, engine = [], triton.engine

    def hanging(model, *call):
        asked.append(model)
        return never() if model == "draft" else engine(model, *call)

    triton.engine, model = hanging, start()
    plain = FakeRequest("a", num_draft_tokens=0)
    model.execute([plain])
    expected = text_of(plain.wait())
    for _ in range(5):
        request = FakeRequest("a")
        model.execute([request])
        assert text_of(request.wait()) == expected
        assert fell_back(request.responses[-1])
    assert asked.count("draft") == FAILURES_BEFORE_REST
    assert "has not answered for 0.05 s" in triton.warnings[0]


def test_a_target_engine_that_hangs_fails_its_request(triton, start, monkeypatch, never):
    monkeypatch.setattr("trt_spec.serve.triton_engines.TARGET_LIMIT_S", 0.05)
    request, triton.engine = FakeRequest("a", num_draft_tokens=0), never
    start().execute([request])
    assert "target has not answered for 0.05 s" in request.wait().error().message()
    assert metrics_of(triton, 1)["trtspec_running_requests"] == 0


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


def bias_request(text, bias_words, weights):
    request = FakeRequest(text)
    request._inputs += [
        Tensor("embedding_bias_words", np.array([[word.encode() for word in bias_words]], np.object_)),
        Tensor("embedding_bias_weights", np.array([weights], np.float32)),
    ]
    return request


@pytest.mark.parametrize("draft_vocab", [312, 320, 328])
def test_each_engine_gets_a_bias_of_its_own_length(triton, start, draft_vocab):
    request = bias_request("a", ["b"], [1.5])
    start(draft_vocab_size=draft_vocab).execute([request])
    text_of(request.wait())
    found = {model: inputs["embedding_bias"] for model, inputs in triton.calls}
    assert {model: bias.shape for model, bias in found.items()} == {"target": (1, 320), "draft": (1, draft_vocab)}
    assert all(sorted(bias[bias != 0]) == [1.5] for bias in found.values())


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


def text_value(text):
    return np.array([[text.encode()]], np.object_)


def with_source(text, source, **inputs):
    request = FakeRequest(text, **inputs)
    request._inputs.append(Tensor("draft_source", text_value(source)))
    return request


@pytest.mark.parametrize("by", ["request", "deployment"])
def test_ngram_lookup_drafts_without_the_draft_model(triton, start, by):
    triton.engine = lambda model, ids, n, drafts: [7 + (len(ids) + i) % 3 for i in range(n)]
    request = with_source("aaaaaaaa", "ngram" if by == "request" else "", max_tokens=40)
    plain = FakeRequest("aaaaaaaa", max_tokens=40, num_draft_tokens=0)
    model = start(draft_source="ngram" if by == "deployment" else "model")
    model.execute([request, plain])
    assert text_of(request.wait()) == text_of(plain.wait())
    drafted, accepted, _ = counts_of(request.responses[-1])
    assert drafted >= accepted > 10
    assert {name for name, _ in triton.calls} == {"target"}
    metrics = metrics_of(triton, 2)
    assert metrics["trtspec_ngram_draft_tokens_total"] == metrics["trtspec_draft_tokens_total"] == drafted
    assert metrics["trtspec_accepted_ngram_draft_tokens_total"] == accepted


@pytest.mark.parametrize(
    ("source", "inputs", "parameters", "message"),
    [
        ("cache", {}, {}, "expected model, ngram, auto"),
        ("ngram", {"num_draft_tokens": 0}, {}, "drafts nothing"),
        ("model", {}, {"tensorrt_llm_draft_model_name": ""}, "no draft model"),
        ("auto", {}, {"tensorrt_llm_draft_model_name": ""}, "no draft model"),
        ("", {"use_draft_logits": True}, {}, "use_draft_logits true is not supported here"),
    ],
)
def test_what_a_deployment_lacks_is_refused(start, source, inputs, parameters, message):
    request = with_source("a", source, **inputs)
    start(**parameters).execute([request])
    error = request.wait().error()
    assert error.code == TritonError.INVALID_ARG
    assert message in error.message()


@pytest.mark.parametrize("parameters", [{"draft_source": "cache"}, {"accept": "all"}])
def test_a_deployment_that_says_nonsense_does_not_start(start, parameters):
    with pytest.raises(ValueError, match="expected"):
        start(**parameters)


LOGITS_ROW = np.linspace(-3.0, 3.0, 312, dtype=np.float32)


def draft_logits_of(inputs, new):
    return {"generation_logits": np.tile(LOGITS_ROW, (1, 1, len(new) + 1, 1))} if "end_id" not in inputs else {}


def test_logits_go_to_the_target_as_the_draft_sampled_them(triton, start):
    triton.more_outputs = draft_logits_of
    request = FakeRequest("a", temperature=np.float32(0.5), top_k=np.int32(4), seed=np.uint64(1))
    start(accept="logits", target_logits_width=328).execute([request])
    text_of(request.wait())
    drafts = [inputs for model, inputs in triton.calls if model == "draft"]
    verified = [inputs["draft_logits"] for model, inputs in triton.calls if "draft_input_ids" in inputs]
    assert len(drafts) == len(verified) == 2
    assert all(inputs["return_generation_logits"].all() and "end_id" not in inputs for inputs in drafts)
    q = np.exp(LOGITS_ROW[-4:] / 0.5)
    for sent in verified:
        assert (sent.shape, sent.dtype) == ((1, 2, 328), np.float32)
        np.testing.assert_allclose(np.exp(sent[0, 0, 308:312]), q / q.sum(), rtol=1e-5)
        assert np.isfinite(sent).all()
        assert (np.exp(sent) > 0).sum() == 8


def test_a_draft_without_logits_is_accepted_by_equality(triton, start):
    request = FakeRequest("a", temperature=np.float32(0.5), top_k=np.int32(4))
    start(accept="logits").execute([request])
    text_of(request.wait())
    assert counts_of(request.responses[-1]) == (4, 4, 2)
    assert not any("draft_logits" in inputs for _, inputs in triton.calls)
    assert [line for line in triton.warnings if "gave no generation_logits" in line] == triton.warnings[:1]


def test_fast_logits_go_on_as_the_handle_they_are(triton, start):
    handle = np.arange(4, dtype=np.float32).reshape(1, 1, 1, 4)
    triton.more_outputs = lambda inputs, new: (
        {"generation_logits": handle} if "return_generation_logits" in inputs else {}
    )
    model = start(accept="fast_logits")
    raw, cooled = (
        FakeRequest("a", temperature=np.float32(value), top_p=np.float32(1.0), seed=np.uint64(1)) for value in (1, 0.5)
    )
    model.execute([raw])
    text_of(raw.wait())
    sent = [inputs["draft_logits"] for _, inputs in triton.calls if "draft_logits" in inputs]
    assert len(sent) == 2
    assert all((value == handle[:, 0]).all() and value.shape == (1, 1, 4) for value in sent)
    triton.calls.clear()
    model.execute([cooled])
    text_of(cooled.wait())
    assert not any("draft_logits" in inputs or "return_generation_logits" in inputs for _, inputs in triton.calls)


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


def test_who_asks_for_the_log_gets_the_rounds_and_not_the_text(triton, start):
    asking, silent = FakeRequest("secret"), FakeRequest("secret")
    asking.parameters_text = json.dumps({"trtspec_debug": True})
    model = start()
    model.execute([silent])
    silent.wait()
    assert triton.lines == []
    model.execute([asking])
    rounds = counts_of(asking.wait())[2]
    metrics_of(triton, 2)
    lines = [json.loads(line.removeprefix("trtspec ")) for line in triton.lines]
    assert [line["event"] for line in lines] == ["begin", *["round"] * rounds, "end"]
    assert lines[1]["drafted"] == lines[1]["accepted"] == 2
    assert (lines[1]["model"], lines[1]["request"]) == ("ensemble", lines[0]["request"])
    assert lines[-1]["outcome"] == "answered"
    assert "secret" not in "".join(triton.lines)
