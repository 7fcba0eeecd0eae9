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


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("meta-llama/Llama-3.2-1B-Instruct", "Qwen/Qwen2.5-0.5B-Instruct", "different vocabularies"),
        ("tensor_parallel: 4", "tensor_parallel: 3", "do not divide by 3 ranks"),
        ("speculation:", "limits: {max_input_len: 200000}\nspeculation:", "supports 131072 < 201024 tokens"),
        ("meta-llama/Llama-3.2-1B-Instruct", "./", "has no config.json"),
    ],
)
def test_deploy_refuses_what_the_plan_does(spec: Path, tmp_path: Path, old: str, new: str, words: str) -> None:
    """There is no build between the two that would."""
    spec.write_text(SPEC.replace(old, new))
    result = run("deploy", spec, "-o", tmp_path / "workspace")
    assert result.exit_code == 2
    assert words in result.stderr
    assert not (tmp_path / "workspace").exists()


@pytest.mark.parametrize("model", ["someone/else", "/not/on/this/machine"])
def test_what_is_not_known_here_is_said_to_be_unchecked(spec: Path, tmp_path: Path, model: str) -> None:
    spec.write_text(SPEC.replace("meta-llama/Llama-3.2-1B-Instruct", model))
    result = run("deploy", spec, "-o", tmp_path / "workspace")
    assert result.exit_code == 0, result.output
    assert f"note: draft: {model} is not on this machine, so neither" in result.stderr
    assert "note: target: meta-llama" not in result.stderr
    spec.write_text(spec.read_text().replace("tensor_parallel: 4", "tensor_parallel: 3"))
    assert "target.tensor_parallel 3" in run("deploy", spec, "-o", tmp_path / "workspace").stderr


def test_deploy_without_a_container_says_what_it_leaves_out(spec: Path, tmp_path: Path) -> None:
    spec.write_text(SPEC.replace("1.2.1", "1.3.0rc24"))
    result = run("deploy", spec, "-o", tmp_path / "workspace")
    assert result.exit_code == 0, result.output
    assert "note: triton/launch.sh is left out: TensorRT-LLM 1.3.0rc24 needs an image of your own." in result.stderr
    assert "trtspec serve" not in result.stderr  # it could start no container
    assert "Draft_Target" in (tmp_path / "workspace" / "repository" / "tensorrt_llm" / "1" / "model.yaml").read_text()


def test_deploy_after_plan(spec: Path, tmp_path: Path) -> None:
    result = run("deploy", spec, "-o", tmp_path / "workspace")
    assert result.exit_code == 0, result.output
    assert (tmp_path / "workspace" / "repository" / "tensorrt_llm" / "1" / "model.yaml").is_file()
