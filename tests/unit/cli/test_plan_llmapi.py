"""`trtspec plan` and `trtspec deploy` on a spec of backend llmapi, offline."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from trt_spec.cli.main import main

SPEC = """\
name: pair
backend: llmapi
tensorrt_llm: "1.2.1"
hardware: {gpu: H200, gpus: 8}
target: {model: meta-llama/Llama-3.1-70B-Instruct, tensor_parallel: 4}
draft: {model: meta-llama/Llama-3.2-1B-Instruct}
speculation: {mode: draft_target}
"""


@pytest.fixture
def spec(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TRTSPEC_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    file = tmp_path / "pair.yaml"
    file.write_text(SPEC)
    return file


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(main, list(map(str, arguments)))


def test_the_plan_prints_model_yaml_and_the_commands(spec: Path) -> None:
    result = run("plan", spec)
    assert result.exit_code == 0, result.output
    for words in ("decoding_type: DraftTarget", "trtllm-llmapi-launch", "trtllm-serve", "vllm serve", "the plan holds"):
        assert words in result.output
    assert "draft.gpus" not in result.output  # the draft cannot have GPUs of its own here
    document = json.loads(run("plan", spec, "--json").stdout)
    assert document["llmapi"]["model_yaml"]["tensor_parallel_size"] == 4
    assert document["llmapi"]["launch"]["nodes"] == [0, 0, 0, 0]


def test_a_pair_of_different_tokenizers_is_refused(spec: Path) -> None:
    spec.write_text(SPEC.replace("meta-llama/Llama-3.2-1B-Instruct", "Qwen/Qwen2.5-0.5B-Instruct"))
    result = run("plan", spec)
    assert result.exit_code == 2
    assert "different vocabularies" in result.output


def test_deploy_after_plan(spec: Path, tmp_path: Path) -> None:
    result = run("deploy", spec, "-o", tmp_path / "workspace")
    assert result.exit_code == 0, result.output
    assert (tmp_path / "workspace" / "repository" / "tensorrt_llm" / "1" / "model.yaml").is_file()
