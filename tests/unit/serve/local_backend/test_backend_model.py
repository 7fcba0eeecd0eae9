"""The Triton glue of the local engine on a fake Python backend: inputs and outputs of NVIDIA's backend, by version."""

import json
import sys
import threading
import types

import numpy as np
import pytest

from trt_spec.deploy.dialect import load_dialect
from trt_spec.serve.contract import TARGET_MODEL
from trt_spec.serve.local_backend import batcher
from trt_spec.serve.local_backend.backend_model import TritonPythonModel
from trt_spec.serve.local_backend.engine_request import read_engine_request
from trt_spec.serve.triton_request import TensorReader

FINAL = 1
PROMPT = [5, 6, 7]
VOCAB = 320


class Tensor:
    def __init__(self, name, values):
        self.name, self.as_numpy = lambda: name, lambda: values


class InferenceResponse:
    def __init__(self, output_tensors=(), error=None):
        self.outputs = {tensor.name(): tensor.as_numpy() for tensor in output_tensors}
        self.error = error


class Request:
    """A client's request; ``responses`` are its responses, ``flags`` what each was sent with."""

    def __init__(self, ids=PROMPT, new_tokens=4, request_id="", **inputs):
        given = {
            "input_ids": np.array([ids], np.int32),
            "input_lengths": np.array([[len(ids)]], np.int32),
            "request_output_len": np.array([[new_tokens]], np.int32),
        }
        given |= {name: np.array([[v]]) if np.isscalar(v) else v[None] for name, v in inputs.items()}
        self._inputs = [Tensor(name, values) for name, values in given.items()]
        self.request_id = lambda: request_id
        self.parameters = lambda: "{}"
        self.cancelled, self.fails = False, False
        self.responses, self.flags = [], []
        self.begun, self.done = threading.Event(), threading.Event()

    def inputs(self):
        return self._inputs

    def is_cancelled(self):
        return self.cancelled

    def get_response_sender(self):
        return self

    def send(self, response=None, flags=0):
        if self.fails and response.error is None:
            raise RuntimeError("shared memory is full")
        assert not self.done.is_set(), "a response behind the final one"
        self.responses.append(response)
        self.flags.append(flags)
        self.begun.set()
        if flags == FINAL:
            self.done.set()

    def wait(self):
        assert self.done.wait(30), "no answer"
        return self.responses

    def refusal(self):
        (response,) = self.wait()
        assert response.error is not None
        return response.error[0]


@pytest.fixture
def start(build_tiny_engine, monkeypatch):
    """start(version, decoupled, **parameters) -> a running model of the tiny target with that version's outputs."""
    module = types.ModuleType("triton_python_backend_utils")
    module.Tensor, module.InferenceResponse = Tensor, InferenceResponse
    module.TritonError = type(
        "TritonError",
        (),
        {"INTERNAL": 1, "INVALID_ARG": 2, "CANCELLED": 3, "__new__": lambda cls, text, code=1: (text, code)},
    )
    module.TRITONSERVER_RESPONSE_COMPLETE_FINAL = FINAL
    module.Logger = types.SimpleNamespace(log_error=lambda text: None)
    monkeypatch.setitem(sys.modules, "triton_python_backend_utils", module)
    started = []

    def start(version="1.3.0rc3", decoupled=False, mode=1, **parameters):
        folder = build_tiny_engine("pair-target", speculative_decoding_mode=mode)
        given = {"gpt_model_path": str(folder), **parameters}
        outputs = load_dialect(version).models[TARGET_MODEL].outputs
        config = {
            "parameters": {name: {"string_value": value} for name, value in given.items()},
            "output": [{"name": tensor.name, "data_type": f"TYPE_{tensor.dtype}"} for tensor in outputs],
            "model_transaction_policy": {"decoupled": decoupled},
        }
        model = TritonPythonModel()
        model.initialize({"model_config": json.dumps(config)})
        started.append(model)
        return model

    yield start
    for model in started:
        model.finalize()


def ask(model, **inputs):
    request = Request(**inputs)
    model.execute([request])
    return request


def only(request):
    (response,) = request.wait()
    assert response.error is None, response.error
    return response.outputs


def test_tokens_alone_are_sent_where_nothing_more_is_asked_for(start):
    assert only(ask(start())).keys() == {"output_ids", "sequence_length"}


def test_everything_that_can_be_asked_for(start):
    names = ("return_log_probs", "return_context_logits", "return_generation_logits", "return_perf_metrics")
    names += ("return_num_input_tokens", "return_num_output_tokens", "exclude_input_in_output")
    outputs = only(ask(start(), **dict.fromkeys(names, True)))
    declared = {tensor.name: tensor for tensor in load_dialect("1.3.0rc3").models[TARGET_MODEL].outputs}
    assert declared.keys() - outputs.keys() == {"batch_index", "sequence_index", "context_phase_params"}
    for name, values in outputs.items():
        assert values.ndim == 1 + len(declared[name].dims), name
        assert values.dtype == {"INT32": np.int32, "INT64": np.int64, "FP32": np.float32}[declared[name].dtype], name
    assert outputs["context_logits"].shape == (1, 3, VOCAB)
    assert outputs["generation_logits"].shape == (1, 1, 4, VOCAB)
    assert outputs["output_log_probs"].tolist() == [[[0.0] * 4]]  # greedy, normalised, as the C++ engine
    assert outputs["cum_log_probs"].shape == (1, 1) and outputs["cum_log_probs"][0, 0] < 0
    assert outputs["num_input_tokens"].tolist() == [[3]]
    assert outputs["num_output_tokens"].tolist() == [[4]]
    times = [int(outputs[f"{name}_time_ns"][0, 0]) for name in ("arrival", "first_scheduled", "first_token")]
    assert times == sorted(times) and times[-1] < outputs["last_token_time_ns"][0, 0]


def test_a_version_without_an_output_is_not_sent_it(start):
    """0.18.2 names the switch differently, and has the three figures of the cache alone."""
    asked = {"return_kv_cache_reuse_stats": True, "return_num_input_tokens": True}
    outputs = only(ask(start("0.18.2"), **asked))
    assert {name for name in outputs if name.startswith("kv_cache")} == {
        "kv_cache_reused_blocks",
        "kv_cache_alloc_new_blocks",
        "kv_cache_alloc_total_blocks",
    }
    assert "num_input_tokens" not in outputs
    assert only(ask(start("0.14.0"), **asked)).keys() == {"output_ids", "sequence_length"}


def test_reuse_is_told_in_blocks(start):
    model = start()
    prompt = [int(t) for t in np.random.default_rng(0).integers(0, 300, 70)]
    asked = {"ids": prompt, "new_tokens": 2, "return_perf_metrics": True}
    names = ("kv_cache_reused_blocks", "kv_cache_alloc_new_blocks", "kv_cache_alloc_total_blocks")

    def told():
        outputs = only(ask(model, **asked))
        return [int(outputs[name][0, 0]) for name in names]

    assert told() == [0, 3, 3]
    assert told() == [2, 1, 1]


def test_verification_tells_what_it_accepted(start):
    model = start()
    new = only(ask(model, exclude_input_in_output=True))["output_ids"][0, 0].tolist()
    drafts = np.array([*new[:2], (new[2] + 1) % VOCAB], np.int32)
    outputs = only(ask(model, draft_input_ids=drafts, return_perf_metrics=True))
    assert (outputs["total_draft_tokens"][0, 0], outputs["total_accepted_draft_tokens"][0, 0]) == (3, 2)
    assert outputs["acceptance_rate"][0, 0] == pytest.approx(2 / 3)


def test_a_target_for_drafts_leaves_log_probs_unset(start):
    """With drafts and without: the layer that samples there has no log-probabilities."""
    model = start(mode=2)
    for drafts in ({}, {"draft_input_ids": np.array([1, 2], np.int32)}):
        assert only(ask(model, return_log_probs=True, **drafts)).keys() == {"output_ids", "sequence_length"}


def test_log_probs_are_as_the_model_says(start):
    plain = only(ask(start(normalize_log_probs="false"), return_log_probs=True))
    assert plain["output_log_probs"].sum() == pytest.approx(plain["cum_log_probs"][0, 0], abs=1e-5)


def test_a_stream_has_a_response_a_token(start):
    model = start(decoupled=True)
    whole = only(ask(model, new_tokens=6, exclude_input_in_output=True))["output_ids"][0, 0].tolist()
    stream = ask(model, new_tokens=6, streaming=True, return_log_probs=True, exclude_input_in_output=False)
    responses = stream.wait()
    assert [r.outputs["output_ids"].tolist() for r in responses] == [[[[token]]] for token in whole]
    assert [r.outputs["sequence_length"].tolist() for r in responses] == [[[1]]] * 6
    assert [r.outputs["output_log_probs"].shape for r in responses] == [(1, 1, 1)] * 6
    assert stream.flags == [0] * 5 + [FINAL]


def test_sequences_of_one_request_are_those_of_their_seeds(start):
    model = start(decoupled=True)
    sampled = {"runtime_top_p": 1.0, "temperature": 1.5, "new_tokens": 8, "exclude_input_in_output": True}
    request = ask(model, num_return_sequences=3, seed=np.uint64(40), **sampled)
    responses = request.wait()
    assert request.flags == [0, 0, FINAL]
    found = {int(r.outputs["sequence_index"][0, 0]): r.outputs["output_ids"].tolist() for r in responses}
    alone = [only(ask(model, seed=np.uint64(40 + i), **sampled))["output_ids"].tolist() for i in range(3)]
    assert found == dict(enumerate(alone))
    assert len(set(map(str, alone))) == 3


def test_streams_of_several_sequences_end_once(start):
    request = ask(start(decoupled=True), num_return_sequences=2, new_tokens=5, streaming=True)
    responses = request.wait()
    assert request.flags == [0] * 9 + [FINAL]
    for index in range(2):
        ids = [r.outputs["output_ids"] for r in responses if r.outputs["sequence_index"][0, 0] == index]
        assert len(ids) == 5


def bias(value):
    """Values for every token, one of them ``value``."""
    values = np.zeros(VOCAB, np.float32)
    values[3] = value
    return values


@pytest.mark.parametrize(
    ("decoupled", "inputs", "words"),
    [
        (False, {"streaming": True}, "not decoupled"),
        (False, {"num_return_sequences": 2}, "num_return_sequences 2 .* not decoupled"),
        (True, {"num_return_sequences": -1}, "num_return_sequences is -1"),
        (True, {"num_return_sequences": 257}, "expected 1 to 256"),
        (False, {"beam_width": 2}, "beam_width 2 is not supported"),
        (False, {"runtime_top_p": 0.9, "runtime_top_p_decay": 2.0}, "top_p_decay is 2"),
        (False, {"runtime_top_p": 0.9, "runtime_top_p_reset_ids": 3}, "runtime_top_p_reset_ids 3 is not supported"),
        (False, {"stop": True}, "no id"),
        (
            False,
            {"runtime_top_p": 0.9, "runtime_top_p_decay": 0.5, "draft_input_ids": np.array([1], np.int32)},
            "runtime_top_p_decay .* not supported with draft_input_ids",
        ),
        (False, {"embedding_bias": bias(np.nan)}, "embedding_bias has values that are not finite"),
        (False, {"embedding_bias": bias(np.inf)}, "embedding_bias has values that are not finite"),
        (False, {"embedding_bias": np.full(VOCAB, -np.inf, np.float32)}, "embedding_bias .* for every token"),
        (False, {"embedding_bias": np.zeros(VOCAB - 1, np.float32)}, "embedding_bias has 319 values"),
        (False, {"draft_acceptance_threshold": np.float32("nan")}, "draft_acceptance_threshold is nan"),
        (
            False,
            {"draft_input_ids": np.array([1], np.int32), "draft_logits": bias(np.nan)[None]},
            "draft_logits has values that are not finite",
        ),
        (False, {"bad_words_list": np.array([[-3, 4], [1, 2]], np.int32)}, "bad_words_list has the token id -3"),
        (False, {"end_id": VOCAB, "min_tokens": 2}, "end_id is 320, which min_tokens cannot keep away"),
    ],
)
def test_what_cannot_be_is_refused_by_name(start, decoupled, inputs, words):
    import re

    request = ask(start(decoupled=decoupled), **inputs)
    assert re.search(words, request.refusal())


def test_stop_ends_the_request_of_its_id_with_what_it_has(start):
    model = start(decoupled=True)
    running = ask(model, new_tokens=110, streaming=True, request_id="a")
    other = ask(model, new_tokens=30, request_id="b")
    assert running.begun.wait(30)
    stop = ask(model, stop=True, request_id="a")
    (empty,) = stop.wait()
    assert empty.error is None and empty.outputs == {}
    assert 1 < len(running.wait()) < 110
    assert running.responses[-1].error is None
    assert only(other)["sequence_length"].tolist() == [[33]]
    assert only(ask(model, stop=True, request_id="a")) == {}


def test_a_client_that_left_is_answered_and_its_row_is_free(start):
    model = start(decoupled=True, max_tokens_in_paged_kv_cache="128")  # one row
    gone = ask(model, new_tokens=110, num_return_sequences=2, streaming=True)
    assert gone.begun.wait(30)
    gone.cancelled = True
    assert only(ask(model, new_tokens=3))["sequence_length"].tolist() == [[6]]
    assert gone.wait()[-1].error == ("cancelled", 3)


def test_an_answer_that_cannot_be_sent_becomes_an_error(start):
    model = start(decoupled=True)
    request = Request(streaming=True)
    request.fails = True
    model.execute([request])
    assert "shared memory is full" in request.refusal()
    assert only(ask(model))["sequence_length"].tolist() == [[7]]


@pytest.mark.parametrize("sampled", [{}, {"runtime_top_p": 0.9}])
def test_a_bias_may_rule_tokens_out(start, sampled):
    model = start()
    first = only(ask(model, new_tokens=1, exclude_input_in_output=True, **sampled))["output_ids"][0, 0, 0]
    values = np.zeros(VOCAB, np.float32)
    values[first] = -np.inf
    other = only(ask(model, new_tokens=1, exclude_input_in_output=True, embedding_bias=values, **sampled))
    assert other["output_ids"][0, 0, 0] != first


def test_logits_of_no_drafts_do_not_change_how_tokens_are_chosen(start):
    model = start()
    request = Request(draft_logits=np.zeros((0, VOCAB), np.float32))
    asked = read_engine_request(TensorReader(request), model._engine, model._options)
    assert asked.sequences[0].draft_logits is None
    assert "draft_logits" in ask(model, draft_logits=np.zeros((2, VOCAB), np.float32)).refusal()


def test_the_engine_outlives_a_request_that_cannot_be_asked_and_a_step_that_fails(start, monkeypatch):
    model = start(decoupled=True)
    lost = Request(new_tokens=110)
    lost.is_cancelled = lambda: 1 / 0
    model.execute([lost])
    assert "division by zero" in lost.refusal()
    running = ask(model, new_tokens=110, streaming=True)
    assert running.begun.wait(30)
    plan, failures = batcher.plan_step, [RuntimeError("no plan")]

    def plan_step(*args):
        if failures:
            raise failures.pop()
        return plan(*args)

    monkeypatch.setattr(batcher, "plan_step", plan_step)
    assert "no plan" in running.wait()[-1].error[0]
    assert only(ask(model))["sequence_length"].tolist() == [[7]]
