"""The repository of a target with Medusa heads on the real Triton, a tiny ONNX engine standing where TensorRT's would.

The stand-in drafts nothing: what is shown is that models load, clients' names and tensors stay, and nothing is counted.
"""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from trt_spec.deploy.check.options import CheckOptions
from trt_spec.deploy.check.run import inspect_repository
from trt_spec.deploy.deployment import Deployment
from trt_spec.deploy.host.server import RunningServer
from trt_spec.deploy.repository import write_repository
from trt_spec.spec.medusa import default_choices
from trt_spec.verify.lossless.probes import ProbeOptions
from trt_spec.verify.run import VerifyOptions, run_verify
from trt_spec.verify.verdict import check_report

COUNTS = {"total_draft_tokens", "total_accepted_draft_tokens", "acceptance_rate", "draft_rounds"}


def post(url: str, body: dict[str, Any]) -> Any:
    with urllib.request.urlopen(url, data=json.dumps(body).encode(), timeout=60) as answer:
        return json.load(answer)


def test_clients_find_the_same_models_and_no_invented_counts(
    tmp_path: Path,
    tiny_deployment: Callable[..., Deployment],
    serving: Callable[[Path], AbstractContextManager[RunningServer]],
) -> None:
    deployment = replace(
        tiny_deployment(),
        draft=None,
        draft_vocab_size=0,
        max_draft_len=0,
        max_seq_len=120,
        medusa_choices=default_choices(3, 15),
    )
    repository = write_repository(deployment, tmp_path / "repository")
    # The one thing to say against it is the stand-in, which has no heads.
    found = [finding.code for finding in inspect_repository(repository, CheckOptions()).findings]
    assert set(found) == {"medusa-engine"}
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text('{"text": "hello"}\n{"text": "안녕"}\n', encoding="utf-8")
    with serving(repository) as server:
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
        options = VerifyOptions(
            server.grpc_url,
            prompts_path=prompts,
            max_tokens=12,
            tokenizer_folder=deployment.tokenizer_dir,
            probes=ProbeOptions(samples=0, canaries=0, noise_prompts=0, fuzz=False),
        )
        report = run_verify(options)
        check_report(report)
        assert report.lossless and report.speedup is None and report.acceptance.rounds == 0
