"""The repository that deploy writes, loaded and asked by the real Triton, in each dialect with tensors of its own."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from trt_spec.deploy.deployment import Deployment
from trt_spec.deploy.launch import LaunchOptions, running_triton
from trt_spec.deploy.repository import write_repository
from trt_spec.deploy.server import RunningServer

ENGINE_MODELS = ("tensorrt_llm", "tensorrt_llm_draft")
MODELS = (*ENGINE_MODELS, "tensorrt_llm_bls", "ensemble")


def call(server: RunningServer, path: str, body: dict[str, Any] | None = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    with urllib.request.urlopen(f"{server.http_url}/v2/models/{path}", data=data, timeout=60) as answer:
        return json.load(answer)


@pytest.mark.parametrize(
    ("version", "seed", "inputs", "outputs"), [("0.18.2", "random_seed", 53, 12), ("1.2.1", "seed", 62, 21)]
)
def test_every_model_loads_and_answers(
    tmp_path: Path,
    free_ports: dict[str, int],
    build_tiny_engine: Callable[..., Path],
    version: str,
    seed: str,
    inputs: int,
    outputs: int,
) -> None:
    target = build_tiny_engine("pair-target")
    deployment = Deployment(
        name="tiny pair",
        id="0123",
        tensorrt_llm=version,
        target_engine=target,
        draft_engine=build_tiny_engine("pair-draft"),
        tokenizer_dir=target,
        max_draft_len=4,
        max_input_len=64,
        max_output_len=32,
        max_seq_len=128,
        max_batch_size=4,
        kv_cache_tokens=512,
    )
    repository = write_repository(deployment, tmp_path / "work space" / "repository")
    options = LaunchOptions(repository=repository, workspace=repository.parent, timeout_s=120, **free_ports)
    with running_triton(options) as server:
        for model in MODELS:
            loaded = call(server, f"{model}/config")
            assert loaded["model_transaction_policy"]["decoupled"] == (model == "ensemble")
            if model in ENGINE_MODELS:
                assert (len(loaded["input"]), len(loaded["output"])) == (inputs, outputs)
        for model in ("tensorrt_llm_bls", "ensemble"):
            body = {"text_input": "hello", "max_tokens": 8, seed: 1, "return_perf_metrics": True}
            answer = call(server, f"{model}/generate", body)
            assert isinstance(answer["text_output"], str)
            assert answer["total_draft_tokens"] > 0
            assert answer["draft_rounds"] >= 1
    write_repository(deployment, repository)  # what Python compiled while it served is no change of the user's
