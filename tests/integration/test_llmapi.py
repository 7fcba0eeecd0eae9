"""The repository of backend llmapi in the real Triton, with a stand-in where NVIDIA's LLM API model would be."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from trt_spec.deploy.host.launch import LaunchOptions, running_triton
from trt_spec.deploy.launch_files import deploy_to
from trt_spec.deploy.llmapi_model import FOLDER_VARIABLE
from trt_spec.errors import TrtspecError
from trt_spec.plan.workspace import Workspace
from trt_spec.spec.model import Serve, Spec

STANDIN = Path(__file__).parents[1] / "standins" / "llmapi_model"


@pytest.fixture
def deployed(tmp_path: Path, free_ports: dict[str, int]) -> LaunchOptions:
    spec = Spec.model_validate(
        {
            "name": "pair",
            "backend": "llmapi",
            "hardware": {"gpu": "H100", "gpus": 1},
            "target": {"model": "owner/big"},
            "draft": {"model": "owner/small"},
        }
    )
    workspace = Workspace(tmp_path / "a: work, space")
    repository = deploy_to(workspace, spec, "triton").repository
    return LaunchOptions(repository=repository, workspace=workspace.root, serve=Serve(**free_ports), timeout_s=60)


def post(url: str, body: dict[str, Any]) -> Any:
    return urllib.request.urlopen(url, data=json.dumps(body).encode(), timeout=60)


def test_it_streams_and_answers_generate(deployed: LaunchOptions, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(FOLDER_VARIABLE, str(STANDIN))
    with running_triton(deployed) as server:
        model = f"{server.http_url}/v2/models/tensorrt_llm"
        with urllib.request.urlopen(f"{model}/config", timeout=60) as answer:
            config = json.load(answer)
        assert config["model_transaction_policy"]["decoupled"] is True
        assert (len(config["input"]), len(config["output"])) == (17, 16)
        body = {"text_input": "hi", "sampling_param_max_tokens": 3}
        with post(f"{model}/generate", body) as answer:
            plain = json.load(answer)
        assert plain["text_output"] == " hi0 hi1 hi2"
        assert plain["finish_reason"] == "DraftTarget"  # the stand-in says what model.yaml told it
        with post(f"{model}/generate_stream", {**body, "streaming": True}) as answer:
            events = [json.loads(line.removeprefix(b"data: ")) for line in answer if line.startswith(b"data: ")]
        assert [event["text_output"] for event in events] == [" hi0", " hi0 hi1", " hi0 hi1 hi2"]


def test_outside_nvidias_container_the_start_says_what_is_missing(
    deployed: LaunchOptions, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path / "nothing here"))
    with pytest.raises(TrtspecError) as caught, running_triton(deployed):
        pass
    assert "NVIDIA's LLM API model is not at" in str(caught.value)
