"""The repository of a target with Medusa heads on the real Triton, a tiny ONNX engine standing where TensorRT's would.

The stand-in drafts nothing: what is shown is that models load, clients' names and tensors stay, and nothing is counted.
"""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from trt_spec.deploy.check.options import CheckOptions
from trt_spec.deploy.check.run import inspect_repository
from trt_spec.deploy.deployment import Deployment, EngineDeployment
from trt_spec.deploy.host.launch import LaunchOptions, running_triton
from trt_spec.deploy.repository import write_repository
from trt_spec.spec.medusa import default_choices
from trt_spec.spec.model import Serve
from trt_spec.verify.run import VerifyOptions, run_verify
from trt_spec.verify.verdict import check_report

COUNTS = {"total_draft_tokens", "total_accepted_draft_tokens", "acceptance_rate", "draft_rounds"}


def post(url: str, body: dict[str, Any]) -> Any:
    with urllib.request.urlopen(url, data=json.dumps(body).encode(), timeout=60) as answer:
        return json.load(answer)


def test_clients_find_the_same_models_and_no_invented_counts(
    tmp_path: Path, free_ports: dict[str, int], build_tiny_engine: Callable[..., Path]
) -> None:
    target = build_tiny_engine("pair-target")
    deployment = Deployment(
        name="tiny heads",
        id="0123",
        tensorrt_llm="1.2.1",
        target=EngineDeployment(str(target), target, kv_cache_tokens=512),
        draft=None,
        tokenizer_dir=target,
        max_draft_len=0,
        max_input_len=64,
        max_output_len=32,
        max_seq_len=120,
        max_batch_size=4,
        vocab_size=320,
        medusa_choices=default_choices(3, 15),
    )
    repository = write_repository(deployment, tmp_path / "repository")
    # The one thing to say against it is the stand-in, which has no heads.
    found = [finding.code for finding in inspect_repository(repository, CheckOptions()).findings]
    assert set(found) == {"medusa-engine"}
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text('{"text": "hello"}\n{"text": "안녕"}\n', encoding="utf-8")
    options = LaunchOptions(repository=repository, workspace=tmp_path, serve=Serve(**free_ports), timeout_s=120)
    with running_triton(options) as server:
        models = f"{server.http_url}/v2/models"
        body = {"text_input": "hello", "max_tokens": 8, "return_perf_metrics": True}
        answers = [post(f"{models}/{name}/generate", body) for name in ("tensorrt_llm_bls", "ensemble")]
        assert answers[0]["text_output"] == answers[1]["text_output"]
        for answer in answers:
            assert answer.keys() & COUNTS == set() and answer["output_ids"]
        with pytest.raises(urllib.error.HTTPError) as refused:
            post(f"{models}/tensorrt_llm_bls/generate", {**body, "num_draft_tokens": 4})
        assert "num_draft_tokens is 4, expected 0" in refused.value.read().decode()
        with pytest.raises(urllib.error.HTTPError):
            post(f"{models}/tensorrt_llm_bls/generate", {**body, "return_log_probs": True})
        url = f"127.0.0.1:{free_ports['grpc_port']}"
        report = run_verify(VerifyOptions(url, prompts_path=prompts, max_tokens=12, tokenizer_folder=target))
        check_report(report)
        assert report.lossless and report.speedup is None and report.acceptance.rounds == 0
