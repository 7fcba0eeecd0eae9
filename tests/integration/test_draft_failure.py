"""A draft engine that fails while the server runs: every answer is the target's, and nobody waits for ever."""

from __future__ import annotations

import http.client
import os
import signal
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from trt_spec.deploy.host.supervise import STUB, find_parts
from trt_spec.deploy.repository import write_repository
from trt_spec.serve.contract import DRAFT_MODEL, STREAMING_MODEL, UNARY_MODEL
from trt_spec.serve.triton_engines import DRAFT_LIMIT_S

BIAS = {"embedding_bias_words": ["x"], "embedding_bias_weights": [3.0]}


@pytest.fixture(scope="module")
def failing(tmp_path_factory, tiny_deployment, serving):
    """A server whose draft engine refuses every biased request, for it was told of another vocabulary."""
    # Python inside Triton knows only ASCII names of folders, which concerns its log as well.
    folder = tmp_path_factory.mktemp("failing") / "작업 folder" / "repository"
    deployment = tiny_deployment(draft_vocab_size=300, gathers_logits=True)
    # Caches that hold less than a sequence at its longest, the draft's less than the target's.
    tokens = {"target": 90, "draft": 70}
    caches = {role: replace(engine, kv_cache_tokens=tokens[role]) for role, engine in deployment.engines()}
    with serving(write_repository(replace(deployment, **caches), folder)) as server:
        yield server


@pytest.mark.parametrize("model", [UNARY_MODEL, STREAMING_MODEL])
def test_b102_the_target_finishes_alone_and_a_metric_says_so(failing, post, model):
    def ask(**inputs):
        status, answer = post(failing, f"{model}/generate", {"text_input": "hello", "max_tokens": 20, **inputs})
        assert status == 200, answer
        return answer

    assert ask()["total_draft_tokens"] > 0
    alone = ask(num_draft_tokens=0, **BIAS)
    for _ in range(2):
        fallen_back = ask(**BIAS)
        assert fallen_back["text_output"] == alone["text_output"]
        assert fallen_back["total_draft_tokens"] == 0
    assert ask()["total_draft_tokens"] > 0  # other requests go on drafting
    assert count_draft_failures(failing, model) == 2


@pytest.mark.parametrize("model", [UNARY_MODEL, STREAMING_MODEL])
def test_an_answer_larger_than_a_cache_is_refused_or_goes_without_the_draft(failing, post, model):
    def ask(prompt_tokens, **inputs):
        body = {"text_input": "x" * prompt_tokens, "max_tokens": 32, **inputs}
        return post(failing, f"{model}/generate", body)

    for prompt_tokens, drafts in ((30, True), (50, False)):
        status, answer = ask(prompt_tokens)
        assert status == 200, answer
        assert (answer["total_draft_tokens"] > 0) == drafts
        assert answer["draft_fallback"] is False
        assert answer["text_output"] == ask(prompt_tokens, num_draft_tokens=0)[1]["text_output"]
    status, answer = ask(60)
    assert status in (400, 500)
    assert "KV cache holds 90 tokens, this request may need" in answer["error"]


def count_draft_failures(server, model):
    with urllib.request.urlopen(f"http://{server.host}:{server.metrics_port}/metrics", timeout=10) as metrics:
        lines = metrics.read().decode().splitlines()
    (counted,) = [line for line in lines if line.startswith("trtspec_draft_failures_total") and f'"{model}"' in line]
    return int(float(counted.rpartition(" ")[2]))


@pytest.mark.slow
def test_b102_a_draft_process_that_is_killed_leaves_running_and_later_requests_to_the_target(
    tmp_path, tiny_deployment, serving, post
):
    """Killed while it holds a lock in shared memory, it takes Triton's Python backend down with it: then once more."""
    for attempt in range(3):
        with serving(write_repository(tiny_deployment(), tmp_path / str(attempt) / "repository")) as server:
            try:
                kill_the_draft_while_it_answers(server, post)
            except (OSError, http.client.HTTPException):
                if "boost::interprocess::lock_exception" not in read_log(server):
                    raise
            else:
                return
    pytest.fail("Triton has gone down with its process three times")


def kill_the_draft_while_it_answers(server, post):
    """Triton may never answer the calls that were on their way, so those requests take DRAFT_LIMIT_S."""

    def ask(text, **inputs):
        body = {"text_input": text, "max_tokens": 32, **inputs}
        status, answer = post(server, f"{UNARY_MODEL}/generate", body)
        assert status == 200, answer
        return answer

    texts = [f"hello {i}" for i in range(12)]
    expected = [ask(text, num_draft_tokens=0)["text_output"] for text in texts]
    (stub,) = [
        part
        for part in find_parts(server)
        if STUB in part.programs and any(f"/{DRAFT_MODEL}/" in word for word in part.command)
    ]
    with ThreadPoolExecutor(len(texts)) as pool:
        running = [pool.submit(ask, text) for text in texts]
        while not any(answer.done() for answer in running):
            time.sleep(0.001)
        os.kill(stub.pid, signal.SIGKILL)
        killed_at = time.monotonic()
        answers = [answer.result() for answer in running]
    assert time.monotonic() - killed_at < 2 * DRAFT_LIMIT_S  # the draft is left alone after a few failures
    assert [answer["text_output"] for answer in answers] == expected
    assert any(answer["draft_fallback"] for answer in answers)
    later = [ask(text) for text in texts[:4]]
    assert [answer["text_output"] for answer in later] == expected[:4]
    assert all(answer["draft_fallback"] for answer in later)
    fallen_back = sum(answer["draft_fallback"] for answer in [*answers, *later])
    assert count_draft_failures(server, UNARY_MODEL) == fallen_back
    assert "the draft engine fails, the target goes on alone" in read_log(server)


def read_log(server):
    return Path(server.log).read_text(encoding="utf-8", errors="replace")
