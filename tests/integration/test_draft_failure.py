"""A draft engine that fails while the server runs: every answer is the target's, and nobody waits for ever."""

from __future__ import annotations

import urllib.request

import pytest

from trt_spec.deploy.deployment import Deployment, EngineDeployment
from trt_spec.deploy.host.launch import LaunchOptions, running_triton
from trt_spec.deploy.host.ports import find_free_ports
from trt_spec.deploy.repository import write_repository
from trt_spec.serve.contract import STREAMING_MODEL, UNARY_MODEL
from trt_spec.spec.model import Serve

BIAS = {"embedding_bias_words": ["x"], "embedding_bias_weights": [3.0]}


@pytest.fixture(scope="module")
def failing(tmp_path_factory, build_tiny_engine):
    """A server whose draft engine refuses every biased request, for it was told of another vocabulary."""
    target, draft = build_tiny_engine("pair-target"), build_tiny_engine("pair-draft")
    deployment = Deployment(
        name="tiny pair",
        id="0123",
        tensorrt_llm="1.2.1",
        target=EngineDeployment(str(target), target, kv_cache_tokens=512),
        draft=EngineDeployment(str(draft), draft, kv_cache_tokens=512),
        tokenizer_dir=target,
        max_draft_len=4,
        max_input_len=64,
        max_output_len=32,
        max_seq_len=128,
        max_batch_size=4,
        vocab_size=320,
        draft_vocab_size=300,
        gathers_logits=True,
    )
    # Python inside Triton knows only ASCII names of folders, which concerns its log as well.
    repository = write_repository(deployment, tmp_path_factory.mktemp("failing") / "작업 folder" / "repository")
    options = LaunchOptions(
        repository=repository, workspace=repository.parent, serve=Serve(**find_free_ports()), timeout_s=120
    )
    with running_triton(options) as server:
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
