"""The gRPC client against a fake Triton."""

from __future__ import annotations

import socket
from dataclasses import replace
from pathlib import Path

import pytest

from trt_spec.errors import EnvironmentMissing, SpecError, StepFailed, VerifyFailed
from trt_spec.verify.acceptance import Round
from trt_spec.verify.client import TritonClient, parse_url
from trt_spec.verify.measure import measure_model_alone

DEADLINE_S = 20.0


@pytest.fixture
def client(fake_triton):
    with TritonClient(fake_triton.url, deadline_s=DEADLINE_S) as client:
        yield client


def last_request(fake_triton, model: str) -> dict:
    return next(inputs for name, inputs in reversed(fake_triton.requests) if name == model)


def test_orchestrator_request_and_answer(fake_triton, client) -> None:
    answer = client.infer("hello", 9, 4, label="a prompt")
    assert " ".join(map(str, answer.output_ids)) == answer.text
    assert answer.rounds and answer.rounds[0] == Round(4, 4)
    assert (answer.drafted, answer.accepted) == (
        sum(r.drafted for r in answer.rounds),
        sum(r.accepted for r in answer.rounds),
    )
    sent = last_request(fake_triton, "tensorrt_llm_bls")
    assert sent["num_draft_tokens"] == [4] and sent["max_tokens"] == [9] and sent["top_k"] == [1]
    assert sent["return_perf_metrics"] == [True] and sent["stream"] == [False]


def test_no_draft_length_leaves_it_to_the_deployment(fake_triton, client) -> None:
    client.infer("hello", 9, None, label="a prompt")
    assert "num_draft_tokens" not in last_request(fake_triton, "tensorrt_llm_bls")


def test_stream_gives_the_time_of_the_first_text(fake_triton, client) -> None:
    for _ in range(2):  # a second stream on the same connection
        assert client.time_to_first_token("hello", 9, 4, label="a prompt") > 0
    assert last_request(fake_triton, "ensemble")["stream"] == [True]


def test_engine_request_and_answer(fake_triton, client) -> None:
    ids = client.generate_from_ids("tensorrt_llm", (10, 11, 12), 6, (2, 7, 8), label="a prompt")
    assert 0 < len(ids) <= 6
    sent = last_request(fake_triton, "tensorrt_llm")
    assert list(sent["input_ids"]) == [10, 11, 12] and sent["end_id"] == [2]
    assert list(sent["stop_words_list"]) == [7, 8, 1, 2]


def test_prompt_is_cut_off_if_the_engine_returns_it(fake_triton, client) -> None:
    honest = client.generate_from_ids("tensorrt_llm", (10, 11, 12), 6, (2,), label="a prompt")
    fake_triton.behaviour.include_prompt = True
    assert client.generate_from_ids("tensorrt_llm", (10, 11, 12), 6, (2,), label="a prompt") == honest


def test_data_types_are_the_servers(fake_triton, client) -> None:
    fake_triton.behaviour.engine_dtypes = {"end_id": "UINT32", "input_lengths": "INT64"}
    client.generate_from_ids("tensorrt_llm", (10,), 3, (2,), label="a prompt")
    sent = last_request(fake_triton, "tensorrt_llm")
    assert sent["_dtypes"]["end_id"] == "UINT32" and sent["_dtypes"]["input_lengths"] == "INT64"
    assert sent["_dtypes"]["input_ids"] == "INT32"


def test_seed_is_named_as_the_server_names_it(fake_triton, client) -> None:
    assert client.interface("tensorrt_llm").seed_name == "seed"
    client.generate_from_ids("tensorrt_llm", (10,), 3, (2,), label="a prompt")
    assert "seed" in last_request(fake_triton, "tensorrt_llm")
    old = replace(client.interface("tensorrt_llm"), inputs={"random_seed": "UINT64"})
    assert old.seed_name == "random_seed"
    assert replace(old, inputs={}).seed_name is None


def test_parameters_of_the_config(client) -> None:
    assert client.interface("tensorrt_llm_bls").int_parameter("max_draft_len") == 4
    assert client.interface("tensorrt_llm_bls").int_parameter("absent") is None


def test_logits(fake_triton, client) -> None:
    logits = client.next_token_logits("tensorrt_llm", (10, 11), label="a prompt")
    assert logits.shape == (300,) and logits.max() == 10.0
    fake_triton.behaviour.no_logits = True
    assert client.next_token_logits("tensorrt_llm", (10, 11), label="a prompt") is None


def test_contradicting_counters_are_refused(fake_triton, client) -> None:
    fake_triton.behaviour.wrong_totals = True
    with pytest.raises(VerifyFailed, match="contradicts itself"):
        client.infer("hello", 9, 4, label="a prompt")


def test_refusal_carries_the_servers_words(fake_triton, client) -> None:
    fake_triton.behaviour.refuse = "bad"
    with pytest.raises(StepFailed, match=r"refused a bad prompt: .*this prompt is refused\."):
        client.infer("bad", 9, 4, label="a bad prompt")
    assert client.infer("good", 9, 4, label="a good prompt").output_ids


@pytest.mark.parametrize("model", ["tensorrt_llm", "tensorrt_llm_bls", "ensemble"])
def test_server_that_never_answers(fake_triton, model: str) -> None:
    fake_triton.behaviour.hang_on = model
    with TritonClient(fake_triton.url, deadline_s=0.3) as client, pytest.raises(StepFailed) as caught:
        if model == "tensorrt_llm":
            client.generate_from_ids(model, (10,), 3, (2,), label="prompt 'x'")
        elif model == "ensemble":
            client.time_to_first_token("hello", 9, 4, label="prompt 'x'")
        else:
            client.infer("hello", 9, 4, label="prompt 'x'")
    assert "no response after 0.3 s for prompt 'x'" in str(caught.value) and model in str(caught.value)


def test_draft_model_not_ready_is_named(fake_triton, client) -> None:
    assert client.check_ready() == "fake-triton 0.0"
    fake_triton.behaviour.not_ready = ("tensorrt_llm_draft",)
    with pytest.raises(StepFailed, match=r"Draft model not ready: .* tensorrt_llm_draft"):
        client.check_ready()


def test_server_down() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"127.0.0.1:{unused.getsockname()[1]}"
    with (
        TritonClient(url, deadline_s=5) as client,
        pytest.raises(EnvironmentMissing, match="No Triton server") as caught,
    ):
        client.check_ready()
    assert "trtspec serve" in caught.value.remedy and url in str(caught.value)


def test_server_that_accepts_but_says_nothing() -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        url = f"127.0.0.1:{silent.getsockname()[1]}"
        with TritonClient(url, deadline_s=5, connect_deadline_s=0.3) as client, pytest.raises(EnvironmentMissing):
            client.check_ready()


def test_proxy_of_the_environment_is_not_used_for_this_machine(fake_triton, monkeypatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    with TritonClient(fake_triton.url, deadline_s=5) as client:
        assert client.check_ready()


@pytest.mark.parametrize("url", ["http://127.0.0.1:8000", "127.0.0.1", ":8001", "host:port", "host:99999", "a/b:1", ""])
def test_bad_url(url: str) -> None:
    with pytest.raises(SpecError, match="HOST:PORT"):
        parse_url(url)


def test_good_urls() -> None:
    assert parse_url("grpc://gpu-host:8001/") == "gpu-host:8001"
    assert parse_url("[::1]:8001") == "[::1]:8001"


def test_model_alone_counts_every_prompt_but_not_the_warm_up(fake_triton, client) -> None:
    prompts = [(10, 11), (12, 13, 14)]
    alone = measure_model_alone(client, "tensorrt_llm_draft", prompts, 5, (2,))
    expected = [client.generate_from_ids("tensorrt_llm_draft", ids, 5, (2,), label="x") for ids in prompts]
    assert alone.tokens == sum(map(len, expected)) and alone.model == "tensorrt_llm_draft"
    assert alone.tokens_per_s == pytest.approx(alone.tokens / alone.seconds)
    assert measure_model_alone(client, "tensorrt_llm_draft", [], 5).tokens_per_s is None


def test_missing_package_names_the_extra(monkeypatch, tmp_path: Path) -> None:
    monkeypatch.setitem(__import__("sys").modules, "tritonclient.grpc", None)
    with pytest.raises(EnvironmentMissing, match=r"trtspec\[client\]"):
        TritonClient("127.0.0.1:1", deadline_s=1)
