"""Requests of all kinds to one running server: the tiny pair, built, deployed and served as a user would."""

import asyncio
import json
import re
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import tritonclient.grpc as grpcclient
from click.testing import CliRunner

from trt_spec.cli.main import main
from trt_spec.serve.contract import STREAMING_MODEL, TARGET_MODEL, UNARY_MODEL
from trt_spec.verify.client import TritonClient
from trt_spec.verify.load.address import resolve_endpoint
from trt_spec.verify.load.arrival import Bounds, ClosedLoop
from trt_spec.verify.load.deadline import Deadline
from trt_spec.verify.load.request import LoadRequest
from trt_spec.verify.load.run import run_load
from trt_spec.verify.summary import summarise_load

MAX_DRAFT_LEN = 4
PROMPTS = (
    "hello",
    "안녕하세요, 세계!",
    "😀 emoji 👩‍👩‍👧",
    "def add(a, b):",
    "1 + 1 =",
    "x" * 40,
    "naïve café\n\t",
    "<|user|>hi",
)


@pytest.mark.parametrize("text", PROMPTS)
def test_every_door_gives_the_same_text(ask, stream, text):
    plain = ask(text, num_draft_tokens=0)
    assert plain["total_draft_tokens"] == plain["draft_rounds"] == 0
    for draft_tokens in range(1, MAX_DRAFT_LEN + 1):
        answer = ask(text, num_draft_tokens=draft_tokens)
        assert answer["text_output"] == plain["text_output"]
        assert answer["total_draft_tokens"] >= answer["total_accepted_draft_tokens"]
        assert 0 < answer["total_draft_tokens"] <= draft_tokens * answer["draft_rounds"]
    assert ask(text, STREAMING_MODEL)["text_output"] == plain["text_output"]
    for inputs in ({}, {"num_draft_tokens": 0}):
        streamed = stream(text, **inputs)
        assert "".join(event["text_output"] for event in streamed) == plain["text_output"]
        assert len(streamed) > 1


def test_ids_equal_the_target_engine_called_directly(served, tiny):
    from trt_spec.serve.tokens import TextTokenizer

    tokenizer = TextTokenizer(tiny / "tokenizer")
    with TritonClient(served.grpc_url, deadline_s=60) as client:
        for text in PROMPTS:
            direct = client.generate_from_ids(TARGET_MODEL, tokenizer.encode(text), 24, (315, 316), label=text)
            speculative = client.infer(text, 24, MAX_DRAFT_LEN, label=text)
            assert speculative.output_ids == tuple(direct)


@pytest.mark.parametrize("text", PROMPTS[:3])
def test_a_prompt_can_be_had_back_and_survives_unbroken(ask, stream, text):
    answer = ask(text, exclude_input_in_output=False)["text_output"]
    assert answer.startswith(text)
    assert answer == text + ask(text)["text_output"]
    first, *_ = stream(text, exclude_input_in_output=False)
    assert first["text_output"].startswith(text)


@pytest.mark.parametrize("door", ["grpc", "http"])
def test_the_load_client_reads_whole_streams(served, ask, door):
    url = served.grpc_url if door == "grpc" else served.http_url
    requests = [LoadRequest(str(n), "chat", text, 24, num_draft_tokens=MAX_DRAFT_LEN) for n, text in enumerate(PROMPTS)]

    async def run():
        endpoint = resolve_endpoint(url)
        await endpoint.open()
        try:
            return await run_load(endpoint, requests, ClosedLoop(4), Bounds(len(requests)), Deadline(total_s=60))
        finally:
            await endpoint.close()

    result = asyncio.run(run())
    summary = summarise_load(result)
    assert summary.answered == len(PROMPTS) and summary.errors == {}
    assert {item.id: item.text for item in result.requests} == {
        str(n): ask(text)["text_output"] for n, text in enumerate(PROMPTS)
    }
    assert all(sum(item.message_tokens) >= item.tokens > 0 for item in result.requests)
    assert summary.token_source == "ids" and summary.acceptance.drafted > summary.acceptance.accepted > 0


@pytest.mark.slow
def test_an_honest_deployment_passes_every_probe_of_verify(served, tmp_path, tiny):
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text("\n".join(json.dumps({"text": text}) for text in PROMPTS[:5]), encoding="utf-8")
    arguments = ["--url", served.grpc_url, "--prompts", str(prompts), "--max-tokens", "32", "--tokenizer",
                 str(tiny / "tokenizer"), "--json"]  # fmt: skip
    ran = CliRunner().invoke(main, ["verify", *arguments])
    assert ran.exit_code == 0, ran.stderr
    probes = json.loads(ran.stdout)["probes"]
    assert [item["fault"] for item in probes["sampled"]] == [None, None]
    assert all(item["distinct_speculative"] > 3 for item in probes["sampled"])
    assert probes["isolation"]["requests"] == 32 and probes["isolation"]["leaks"] == []
    assert probes["noise"]["different"] == 0 and probes["draft_executions"] > 0
    assert probes["fuzz"]["fatal"] is None and probes["fuzz"]["refused"] > 0  # ten thousand spaces are too long


def test_many_at_once_get_their_own_answers(ask):
    texts = [f"{text} {i}" for i in range(6) for text in PROMPTS]
    alone = [ask(text)["text_output"] for text in texts]
    with ThreadPoolExecutor(32) as pool:
        assert list(pool.map(lambda text: ask(text)["text_output"], texts)) == alone


def test_sampling_follows_the_seed(ask):
    def sample(**inputs):
        return ask("hello", temperature=1.2, top_p=0.95, **inputs)["text_output"]

    for name in ("seed", "random_seed"):
        assert sample(**{name: 1}) == sample(seed=1)
    assert len({sample(seed=seed) for seed in range(4)}) > 1
    assert len({sample() for _ in range(4)}) > 1


def test_a_stop_word_ends_the_answer_and_is_its_end(ask, stream):
    whole = ask("hello")["text_output"]
    stop = whole[6:9]
    cut = whole[: whole.index(stop) + len(stop)]
    for draft_tokens in range(MAX_DRAFT_LEN + 1):
        answer = ask("hello", stop_words=[stop], num_draft_tokens=draft_tokens)
        assert answer["text_output"] == cut
    assert "".join(event["text_output"] for event in stream("hello", stop_words=[stop])) == cut
    assert ask("hello", stop_words=["", "not there"])["text_output"] == whole


def test_an_end_id_of_the_clients_ends_the_answer(ask):
    details = ask("hello", return_perf_metrics=True)
    end_id = details["output_ids"][5]
    before = details["output_ids"][: details["output_ids"].index(end_id)]
    for draft_tokens in range(MAX_DRAFT_LEN + 1):
        answer = ask("hello", end_id=end_id, num_draft_tokens=draft_tokens, return_perf_metrics=True)
        # Triton writes an array of one as a scalar.
        assert np.atleast_1d(answer.get("output_ids", [])).tolist() == before


RULES = {
    "penalties": {"repetition_penalty": 1.3, "presence_penalty": 0.5, "frequency_penalty": 0.2},
    "repetition": {"repetition_penalty": 5.0},
    "minimum": {"min_tokens": 20},
    "minimum by its old name": {"min_length": 20},
}


@pytest.mark.parametrize("text", PROMPTS[:4])
@pytest.mark.parametrize("rule", RULES)
def test_b097_rules_hold_with_speculation_as_without(ask, stream, rule, text):
    free = ask(text, num_draft_tokens=0)["text_output"]
    plain = ask(text, num_draft_tokens=0, **RULES[rule])["text_output"]
    assert "minimum" in rule or plain != free
    for draft_tokens in (1, MAX_DRAFT_LEN):
        answer = ask(text, num_draft_tokens=draft_tokens, **RULES[rule])
        assert answer["text_output"] == plain
        assert answer["total_draft_tokens"] > 0
    assert "".join(event["text_output"] for event in stream(text, **RULES[rule])) == plain


def test_bad_words_are_never_said(ask):
    free = ask("hello", num_draft_tokens=0)["text_output"]
    word = next(letter for letter in free if letter.isascii() and letter.isprintable())  # the tiny models babble bytes
    kept = [ask("hello", bad_words=[word], num_draft_tokens=n)["text_output"] for n in (0, MAX_DRAFT_LEN)]
    assert kept[0] == kept[1] != free


@pytest.mark.parametrize("text", PROMPTS[:3])
def test_b097_a_bias_holds_with_speculation_as_without(ask, stream, text):
    bias = {"embedding_bias_words": ["x", "q"], "embedding_bias_weights": [100.0, 100.0]}
    for more in ({}, {"frequency_penalty": 2.0}):
        plain = ask(text, num_draft_tokens=0, **bias, **more)["text_output"]
        assert len(plain) == 24 and set(plain) <= {"x", "q"}
        answer = ask(text, num_draft_tokens=MAX_DRAFT_LEN, **bias, **more)
        assert answer["text_output"] == plain
        assert answer["total_accepted_draft_tokens"] > 0  # the draft was biased alike
        assert "".join(event["text_output"] for event in stream(text, **bias, **more)) == plain


LOG_PROB_RULES = {
    "greedy": {},
    "penalties": {"repetition_penalty": 1.3, "presence_penalty": 0.5, "temperature": 0.7, "top_k": 1},
    "minimum": {"min_tokens": 20},
    "bias": {"embedding_bias_words": ["x"], "embedding_bias_weights": [3.0]},
}


@pytest.mark.parametrize("rule", LOG_PROB_RULES)
def test_log_probs_with_speculation_are_those_without(ask, stream, rule):
    asked = {"return_log_probs": True, "return_perf_metrics": True, **LOG_PROB_RULES[rule]}
    plain = ask("hello", num_draft_tokens=0, **asked)
    assert len(plain["output_log_probs"]) == len(plain["output_ids"])
    assert max(plain["output_log_probs"]) <= 0.0 and min(plain["output_log_probs"]) < -0.01
    assert plain["cum_log_probs"] == pytest.approx(sum(plain["output_log_probs"]), rel=1e-4)
    answer = ask("hello", num_draft_tokens=MAX_DRAFT_LEN, **asked)
    assert answer["output_ids"] == plain["output_ids"] and answer["total_draft_tokens"] > 0
    np.testing.assert_allclose(answer["output_log_probs"], plain["output_log_probs"], atol=1e-3)
    streamed = stream("hello", **asked)
    told = np.concatenate([np.atleast_1d(event.get("output_log_probs", [])) for event in streamed])
    np.testing.assert_allclose(told, plain["output_log_probs"], atol=1e-3)
    assert streamed[-1]["cum_log_probs"] == pytest.approx(plain["cum_log_probs"], rel=1e-3)


@pytest.mark.parametrize("draft_tokens", [0, MAX_DRAFT_LEN])
def test_b098_an_answer_is_as_long_as_asked(ask, draft_tokens):
    stopped = ask("hello", return_perf_metrics=True, num_draft_tokens=0)
    end_id = int(np.atleast_1d(stopped["output_ids"])[0])
    short = ask("hello", end_id=end_id, num_draft_tokens=draft_tokens, return_perf_metrics=True)
    assert np.atleast_1d(short.get("output_ids", [])).size == 0
    for least in (1, 7, 10):
        inputs = {"end_id": end_id, "min_tokens": least, "num_draft_tokens": draft_tokens, "return_perf_metrics": True}
        assert np.atleast_1d(ask("hello", **inputs)["output_ids"]).size >= least


BAD_REQUESTS = {
    "no text": ({"max_tokens": 4}, "text_input"),
    "max_tokens beyond the limit": ({"text_input": "a", "max_tokens": 61}, "expected 1 to 60"),
    "unknown key": ({"text_input": "a", "max_tokens": 4, "max_token": 5}, "unknown input max_token"),
    "unknown key of Triton's own kind": ({"text_input": "a", "max_tokens": 4, "triton_foo": 1}, "triton_foo"),
    "a book": ({"text_input": "word " * 10**6, "max_tokens": 4}, "characters"),
    "a dictionary of stop words": ({"text_input": "a", "max_tokens": 4, "stop_words": ["x"] * 300}, "at most 256"),
    "several answers": ({"text_input": "a", "max_tokens": 4, "num_return_sequences": 2}, "Send a request for each"),
    "wrong type": ({"text_input": "a", "max_tokens": "four"}, "unable to parse"),
    "no JSON": (b"{", "JSON"),
    "invalid UTF-8": (b'{"text_input": "\xff\xfe", "max_tokens": 4}', "UTF-8"),
}
"""Sent as JSON; test_bad_requests.py sends more, as tensors."""


@pytest.mark.parametrize("model", [UNARY_MODEL, STREAMING_MODEL])
@pytest.mark.parametrize("fault", BAD_REQUESTS)
def test_a_bad_request_gets_its_reason_and_the_next_one_its_answer(served, ask, post, model, fault):
    body, words = BAD_REQUESTS[fault]
    status, answer = post(served, f"{model}/generate", body)
    assert status in (400, 500), answer
    assert words.lower() in answer["error"].lower()
    assert ask("hello", model)["text_output"] == ask("hello")["text_output"]


def test_b009_two_prompts_in_one_request_are_refused(served):
    inputs = [
        grpcclient.InferInput("text_input", [2, 1], "BYTES"),
        grpcclient.InferInput("max_tokens", [2, 1], "INT32"),
    ]
    inputs[0].set_data_from_numpy(np.array([[b"a"], [b"b"]], np.object_))
    inputs[1].set_data_from_numpy(np.array([[4], [4]], np.int32))
    with (
        grpcclient.InferenceServerClient(served.grpc_url) as client,
        pytest.raises(grpcclient.InferenceServerException, match="one prompt a request"),
    ):
        client.infer(UNARY_MODEL, inputs)


def engine_call(client, ids, new_tokens, **more):
    """infer() on the target engine; ``more`` maps names to (dtype, array)."""
    given = {
        "input_ids": ("INT32", np.array([ids], np.int32)),
        "input_lengths": ("INT32", np.array([[len(ids)]], np.int32)),
        "request_output_len": ("INT32", np.array([[new_tokens]], np.int32)),
        **more,
    }
    inputs = []
    for name, (dtype, array) in given.items():
        tensor = grpcclient.InferInput(name, list(array.shape), dtype)
        tensor.set_data_from_numpy(array)
        inputs.append(tensor)
    return client.infer(TARGET_MODEL, inputs)


@pytest.fixture
def grpc_client(served):
    with grpcclient.InferenceServerClient(served.grpc_url) as client:
        yield client


def test_the_engine_answers_nvidias_tensors(grpc_client):
    plain = engine_call(grpc_client, [5, 6, 7], 5).as_numpy("output_ids")
    assert plain.shape == (1, 1, 8)
    assert plain[0, 0, :3].tolist() == [5, 6, 7]
    new = plain[0, 0, 3:].tolist()
    drafts = np.array([[new[0], (new[1] + 1) % 313]], np.int32)
    result = engine_call(
        grpc_client,
        [5, 6, 7],
        3,
        draft_input_ids=("INT32", drafts),
        exclude_input_in_output=("BOOL", np.array([[True]])),
        return_generation_logits=("BOOL", np.array([[True]])),
    )
    assert result.as_numpy("output_ids").tolist() == [[new[:2]]]
    assert result.as_numpy("sequence_length").tolist() == [[2]]
    assert result.as_numpy("generation_logits").argmax(axis=3).tolist() == [[new[:2]]]


@pytest.mark.parametrize(
    ("ids", "new_tokens", "more", "words"),
    [
        ([1], 0, {}, "request_output_len is 0"),
        ([1], 1000, {}, "expected 1 to"),
        ([1] * 127, 1, {}, "at most 123"),
        ([400], 1, {}, "vocabulary of 320"),
        ([1], 6, {"draft_input_ids": ("INT32", np.full((1, 5), 2, np.int32))}, "max_draft_len 4"),
        ([1], 1, {"streaming": ("BOOL", np.array([[True]]))}, "not decoupled"),
        ([1], 1, {"beam_width": ("INT32", np.array([[2]], np.int32))}, "beam_width"),
        ([1], 1, {"stop_words_list": ("INT32", np.array([[[1], [5]]], np.int32))}, "word ends"),
        ([1], 1, {"draft_logits": ("FP32", np.zeros((1, 1, 320), np.float32))}, "draft_logits"),
    ],
)
def test_the_engine_refuses_by_name_and_goes_on(grpc_client, ids, new_tokens, more, words):
    with pytest.raises(grpcclient.InferenceServerException, match=words):
        engine_call(grpc_client, ids, new_tokens, **more)
    assert engine_call(grpc_client, [5], 2).as_numpy("output_ids").shape == (1, 1, 3)


def test_a_large_form_encoded_body_does_not_end_the_server(served, ask):
    """What `curl -d` sends: Triton parses it on the stack of a thread."""
    request = urllib.request.Request(
        f"{served.http_url}/v2/models/{UNARY_MODEL}/generate",
        data=b"x" * (4 << 20),
        headers={"Content-Type": "application/x-www-form-urlencoded"},
    )
    with pytest.raises(urllib.error.HTTPError):
        urllib.request.urlopen(request, timeout=60)
    assert ask("hello")["text_output"]


def test_the_readmes_curl_lines_work(served, post, stream):
    readme = (Path(__file__).parents[2] / "README.md").read_text()
    calls = re.findall(r"^curl -sN? localhost:8000/v2/models/(\S+) -d '(.*)'$", readme, re.MULTILINE)
    assert {path for path, _ in calls} == {
        f"{UNARY_MODEL}/generate",
        f"{STREAMING_MODEL}/generate",
        f"{STREAMING_MODEL}/generate_stream",
    }
    for path, body in calls:
        inputs = json.loads(body)
        if path.endswith("generate_stream"):
            text = inputs.pop("text_input")
            assert len(stream(text, **inputs)) > 1
        else:
            assert post(served, path, inputs)[0] == 200


def test_the_readmes_python_works(served, capsys):
    readme = (Path(__file__).parents[2] / "README.md").read_text()
    (code,) = re.findall(r"^```python\n(.*?)^```$", readme, re.MULTILINE | re.DOTALL)
    exec(code.replace("localhost:8001", served.grpc_url), {})
    first, *pieces = capsys.readouterr().out.splitlines()
    assert "[[" in first
    assert pieces
