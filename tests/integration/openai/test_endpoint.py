"""The endpoint and the real Triton: the same answers, many at once, clients that leave, what options do."""

import asyncio
import json
import re
import socket
import time
import urllib.request

import httpx
import pytest

from trt_spec.serve.tokens import TextTokenizer
from trt_spec.verify.client import TritonClient

MODEL = "tiny-pair"
WORDS = (
    "hello",
    "안녕하세요",
    "😀 emoji",
    "def f(x):",
    "1 + 1 =",
    "naïve café\n\t",
    "x" * 40,
    "<|user|>hi",
    "Zeit",
    " a b ",
)
PROMPTS = [f"{word} {number}" for number in range(5) for word in WORDS]


@pytest.fixture(scope="module")
def http(endpoint):
    with httpx.Client(base_url=endpoint.openai_url, timeout=60, trust_env=False) as client:
        yield client


@pytest.fixture(scope="module")
def triton(endpoint):
    with TritonClient(endpoint.grpc_url, deadline_s=60) as client:
        yield client


def complete(http, **fields):
    """The only choice of a completion, and the whole answer."""
    body = {"model": MODEL, "prompt": "hello", "max_tokens": 24, "temperature": 0, **fields}
    answer = http.post("/v1/completions", json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()["choices"][0], answer.json()


async def stream_text(client, prompt, **fields):
    """The pieces of a streamed completion and its finish reason."""
    body = {"model": MODEL, "prompt": prompt, "max_tokens": 24, "temperature": 0, "stream": True, **fields}
    pieces, reasons = [], []
    async with client.stream("POST", "/v1/completions", json=body) as answer:
        assert answer.status_code == 200, await answer.aread()
        lines = [line.removeprefix("data: ") async for line in answer.aiter_lines() if line]
    assert lines[-1] == "[DONE]"
    for line in lines[:-1]:
        (choice,) = json.loads(line)["choices"]
        pieces.append(choice["text"])
        reasons.append(choice["finish_reason"])
    assert set(reasons[:-1]) <= {None}
    return pieces, reasons[-1]


def gather(endpoint, *coroutines_of):
    """Results of functions that take an asynchronous client, all run at once."""

    async def run():
        limits = httpx.Limits(max_connections=None)
        options = {"base_url": endpoint.openai_url, "timeout": 120, "trust_env": False, "limits": limits}
        async with httpx.AsyncClient(**options) as client:
            return await asyncio.gather(*(make(client) for make in coroutines_of))

    return asyncio.run(run())


def test_fifty_greedy_answers_are_the_orchestrators(endpoint, triton):
    expected = [triton.infer(prompt, 24, None, label=prompt).text for prompt in PROMPTS]
    streamed = gather(endpoint, *(lambda c, p=prompt: stream_text(c, p) for prompt in PROMPTS))
    assert ["".join(pieces) for pieces, _ in streamed] == expected
    with httpx.Client(base_url=endpoint.openai_url, timeout=60, trust_env=False) as client:
        assert [complete(client, prompt=prompt)[0]["text"] for prompt in PROMPTS] == expected
    assert len(set(expected)) > 25


def test_sixty_four_streams_at_once_are_right_and_in_order(endpoint, triton):
    prompts = [f"{number} {WORDS[number % 5]}" for number in range(64)]
    expected = [triton.infer(prompt, 12, None, label=prompt) for prompt in prompts]
    found = gather(endpoint, *(lambda c, p=prompt: stream_text(c, p, max_tokens=12) for prompt in prompts))
    assert ["".join(pieces) for pieces, _ in found] == [answer.text for answer in expected]
    reasons = ["length" if len(answer.output_ids) == 12 else "stop" for answer in expected]
    assert [reason for _, reason in found] == reasons


def test_usage_counts_what_the_engine_read_and_wrote(http, triton, tiny):
    tokenizer = TextTokenizer(tiny / "tokenizer")
    for prompt in WORDS:
        _, answer = complete(http, prompt=prompt)
        told = triton.infer(prompt, 24, None, label=prompt)
        assert answer["usage"]["prompt_tokens"] == len(tokenizer.encode(prompt))
        assert answer["usage"]["completion_tokens"] == len(told.output_ids)


def test_stops_end_the_answer_and_are_left_out(http, endpoint, triton):
    whole = triton.infer("hello", 24, None, label="hello").text
    stop = whole[6:9]
    choice, _ = complete(http, stop=[stop, "never said"])
    assert (choice["text"], choice["finish_reason"]) == (whole[: whole.index(stop)], "stop")
    ((pieces, reason),) = gather(endpoint, lambda c: stream_text(c, "hello", stop=stop))
    assert ("".join(pieces), reason) == (whole[: whole.index(stop)], "stop")
    assert complete(http, stop="never said")[0] == complete(http)[0]


def test_the_end_of_a_model_is_a_stop_and_can_be_ignored(http):
    """A bias makes the end token certain."""
    ended, answer = complete(http, logit_bias={"316": 100})
    assert (ended["finish_reason"], ended["text"], answer["usage"]["completion_tokens"]) == ("stop", "", 0)
    least, answer = complete(http, logit_bias={"316": 100}, min_tokens=5)
    assert least["finish_reason"] == "stop" and answer["usage"]["completion_tokens"] >= 5


def test_a_special_token_can_stop(http):
    stopped, answer = complete(http, logit_bias={"314": 100}, stop_token_ids=[314])
    assert (stopped["finish_reason"], answer["usage"]["completion_tokens"]) == ("stop", 1)
    assert complete(http, logit_bias={"314": 100})[0]["finish_reason"] == "length"


def test_sampling_follows_the_seed_and_choices_differ(http):
    def texts(**fields):
        body = {"model": MODEL, "prompt": "hello", "max_tokens": 24, "n": 3, **fields}
        return [choice["text"] for choice in http.post("/v1/completions", json=body).json()["choices"]]

    assert texts(seed=7) == texts(seed=7)
    assert len(set(texts(seed=7))) == 3
    assert texts(seed=-1)[0] != texts(seed=7)[0]
    assert len({text for _ in range(3) for text in texts()}) > 3  # without a seed, every one is drawn anew
    assert len(set(texts(top_p=0))) == len(set(texts(top_k=1))) == 1
    assert texts(seed=7, presence_penalty=2.0, frequency_penalty=2.0) != texts(seed=7)


def test_a_prompt_may_come_back_or_be_ids(http, tiny):
    assert complete(http, echo=True)[0]["text"] == "hello" + complete(http)[0]["text"]
    ids = TextTokenizer(tiny / "tokenizer").encode("hello world")
    assert complete(http, prompt=ids)[0] == complete(http, prompt="hello world")[0]
    answer = http.post("/v1/completions", json={"model": MODEL, "prompt": [5, 5, 319]})
    assert (answer.status_code, "not what this model's tokenizer makes" in answer.text) in ((400, True), (200, False))


def test_exactly_one_bos(http, tiny):
    """The template writes one, whatever the tokenizer adds."""
    body = {"model": MODEL, "messages": [{"role": "user", "content": "hi"}], "max_tokens": 8, "temperature": 0}
    chat = http.post("/v1/chat/completions", json=body).json()
    text = "<|bos|><|user|>hi<|end|><|assistant|>"
    ids = TextTokenizer(tiny / "tokenizer").encode(text)
    assert ids.count(TextTokenizer(tiny / "tokenizer").encode("<|bos|>")[0]) == 1
    assert chat["usage"]["prompt_tokens"] == len(ids)
    assert chat["choices"][0]["message"]["content"] == complete(http, prompt=text, max_tokens=8)[0]["text"]


def read_metric(url, pattern):
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(url, timeout=10) as answer:
        text = answer.read().decode()
    return sum(float(value) for value in re.findall(rf"^{pattern} ([0-9.e+-]+)$", text, re.MULTILINE))


def wait_for(condition, seconds=20):
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.05)
    return condition()


@pytest.mark.parametrize("stream", [True, False])
def test_clients_that_leave_end_their_work(endpoint, http, stream):
    """Sent over bare sockets, closed at once: twenty leave, all of their work ends, and the next request is served."""
    url, left = (
        f"{endpoint.openai_url}/metrics",
        r'trtspec_openai_requests_total\{path="/v1/completions",status="499"\}',
    )
    before = read_metric(url, left)
    body = json.dumps({"model": MODEL, "prompt": "a" * 30, "max_tokens": 60, "stream": stream, "n": 4}).encode()
    head = f"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n".encode()
    for _ in range(20):
        with socket.create_connection((endpoint.reach_host, endpoint.openai_port)) as client:
            client.sendall(head + body)
            if stream:
                client.recv(15)
    assert wait_for(lambda: read_metric(url, "trtspec_openai_requests_in_flight") == 0)
    assert read_metric(url, left) - before >= 10
    assert wait_for(lambda: read_metric(endpoint.metrics_url, r"trtspec_requests_in_flight\{.*\}") == 0)
    assert complete(http)[0]["text"]


def test_a_full_queue_is_told_with_the_time_to_come_back(endpoint, http):
    """136 fit: 8 places, and 128 that wait."""

    async def ask(client):
        body = {"model": MODEL, "prompt": "hello", "max_tokens": 60, "n": 16, "temperature": 0}
        return await client.post("/v1/completions", json=body)

    answers = gather(endpoint, *[ask] * 16)
    refused = [answer for answer in answers if answer.status_code != 200]
    assert {answer.status_code for answer in refused} == {429}
    assert {answer.headers["retry-after"] for answer in refused} == {"1"}
    assert {answer.json()["error"]["code"] for answer in refused} == {"rate_limit_exceeded"}
    assert len(refused) < 16 and complete(http)[0]["text"]
    refused_in_triton = r'trtspec_requests_total\{.*model="ensemble".*outcome="queue_full".*\}'
    assert read_metric(endpoint.metrics_url, refused_in_triton) == 0


def test_clients_that_never_end_their_headers_hinder_nobody(endpoint, http):
    """Nothing bounds them here, which the docs say; one that ends them after all is answered."""
    head = b"GET /v1/models HTTP/1.1\r\nHost: x\r\nConnection: close\r\nX-Slow: "
    slow = [socket.create_connection((endpoint.reach_host, endpoint.openai_port), timeout=20) for _ in range(200)]
    try:
        for client in slow:
            client.sendall(head)
        assert complete(http)[0]["text"]
        time.sleep(6)  # longer than a connection without a request is kept
        slow[0].sendall(b"x\r\n\r\n")
        assert slow[0].recv(15) == b"HTTP/1.1 200 OK"
        slow[1].setblocking(False)
        with pytest.raises(BlockingIOError):  # not closed
            slow[1].recv(1)
    finally:
        for client in slow:
            client.close()


def test_ids_reach_triton(endpoint, http):
    """The client's own, or one that is made: Triton's verbose log names the request by it."""
    answer = http.post("/v1/completions", json={"model": MODEL, "prompt": "x"}, headers={"X-Request-Id": "abc-1"})
    assert answer.headers["x-request-id"] == "abc-1"
    odd = http.post("/v1/completions", json={"model": MODEL, "prompt": "x"}, headers={"X-Request-Id": "a b" * 99})
    assert odd.headers["x-request-id"].startswith("req_")
