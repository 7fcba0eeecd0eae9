"""A draft engine that fails while the server runs: every answer is the target's, and nobody waits for ever."""

from __future__ import annotations

import urllib.request

import pytest

from trt_spec.deploy.repository import write_repository
from trt_spec.serve.contract import STREAMING_MODEL, UNARY_MODEL

BIAS = {"embedding_bias_words": ["x"], "embedding_bias_weights": [3.0]}


@pytest.fixture(scope="module")
def failing(tmp_path_factory, tiny_deployment, serving):
    """A server whose draft engine refuses every biased request, for it was told of another vocabulary."""
    # Python inside Triton knows only ASCII names of folders, which concerns its log as well.
    folder = tmp_path_factory.mktemp("failing") / "작업 folder" / "repository"
    with serving(write_repository(tiny_deployment(draft_vocab_size=300, gathers_logits=True), folder)) as server:
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
    with urllib.request.urlopen(f"http://{failing.host}:{failing.metrics_port}/metrics", timeout=10) as metrics:
        lines = metrics.read().decode().splitlines()
    counted = [line for line in lines if line.startswith("trtspec_draft_failures_total") and f'"{model}"' in line]
    assert len(counted) == 1 and float(counted[0].rpartition(" ")[2]) == 2.0
