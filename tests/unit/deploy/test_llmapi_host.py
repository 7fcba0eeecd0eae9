"""`trtspec serve` of backend llmapi: what is checked before the start, and the command."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from trt_spec.deploy.gpu_host import llmapi as host_module
from trt_spec.deploy.gpu_host.llmapi import find_llmapi_runner, llmapi_timeout_s, resolve_llmapi_host
from trt_spec.deploy.gpu_host.runner import Runner
from trt_spec.deploy.llmapi import deploy_llmapi
from trt_spec.errors import EnvironmentMissing, SpecError
from trt_spec.plan.workspace import Workspace
from trt_spec.spec.model import Spec

NATIVE = Runner("", Path("/opt/tritonserver/bin/tritonserver"), "1.2.1")
PORTS = {"http_port": 1, "grpc_port": 2, "metrics_port": 3}


@pytest.fixture
def place(tmp_path: Path) -> Workspace:
    return Workspace(tmp_path / "workspace")


@pytest.fixture
def make(tmp_path: Path, place: Workspace, monkeypatch: pytest.MonkeyPatch) -> Any:
    """make(...) -> a deployed spec whose target is a folder; nvidia-smi lists eight GPUs."""
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    lines = "".join(f"{index}, NVIDIA H100, 9.0, 81559, 590.44\n" for index in range(8))
    monkeypatch.setattr(host_module, "query_gpus", lambda fields: lines)
    folder = tmp_path / "big model"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    (folder / "a.safetensors").write_bytes(b"x" * 1000)

    def made(version: str = "1.2.1", **target: Any) -> Spec:
        spec = Spec.model_validate(
            {
                "name": "pair",
                "backend": "llmapi",
                "tensorrt_llm": version,
                "hardware": {"gpu": "H100", "gpus": 8},
                "target": {"model": str(folder), **target},
                "speculation": {"mode": "ngram"},
            }
        )
        deploy_llmapi(place, spec)
        return spec

    return made


def test_natively_it_is_one_process(make: Any, place: Workspace) -> None:
    host = resolve_llmapi_host(make(), place, place.root, NATIVE)
    start = host.command("127.0.0.1", PORTS, "trtspec_abc_")
    assert start.argv[0] == "/opt/tritonserver/bin/tritonserver"
    assert {"--http-port=1", "--grpc-port=2", "--backend-config=python,shm-region-prefix-name=trtspec_abc_0_"} <= set(
        start.argv
    )
    assert start.environment["HF_HUB_OFFLINE"] == "1"


def test_in_a_container_it_sees_the_models(make: Any, place: Workspace, tmp_path: Path) -> None:
    host = resolve_llmapi_host(make(tensor_parallel=4), place, place.root, Runner("image:tag"))
    start = host.command("127.0.0.1", PORTS, "trtspec_abc_")
    assert f"type=bind,source={tmp_path}/big model,target={tmp_path}/big model,readonly" in start.argv
    assert '"device=0,1,2,3"' in start.argv and "image:tag" in start.argv
    assert start.argv.count("trtllm-llmapi-launch") == 4


def test_gpus_that_are_not_there(make: Any, place: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    with pytest.raises(EnvironmentMissing, match="up to index 3, and 2 are visible"):
        resolve_llmapi_host(make(tensor_parallel=4), place, place.root, NATIVE)


def test_another_spec_or_version_is_not_served(make: Any, place: Workspace) -> None:
    spec = make()
    make(tensor_parallel=2)
    with pytest.raises(SpecError, match="deployed from another spec"):
        resolve_llmapi_host(spec, place, place.root, NATIVE)
    spec = make("1.1.0")
    with pytest.raises(SpecError, match=r"1\.2\.1 is installed here"):
        resolve_llmapi_host(spec, place, place.root, NATIVE)


def test_a_container_is_not_left_to_download(make: Any, place: Workspace) -> None:
    spec = make(model="owner/big")
    with pytest.raises(SpecError, match="owner/big: a container would download it"):
        resolve_llmapi_host(spec, place, place.root, Runner("image:tag"))
    resolve_llmapi_host(spec, place, place.root, NATIVE)


def test_a_folder_without_a_checkpoint(make: Any, place: Workspace, tmp_path: Path) -> None:
    spec = make(model=str(tmp_path))
    with pytest.raises(SpecError, match=r"holds no config\.json"):
        resolve_llmapi_host(spec, place, place.root, NATIVE)


def test_the_time_to_load_follows_the_files(make: Any) -> None:
    assert llmapi_timeout_s(make()) == pytest.approx(300 + 1000 / 200e6)
    assert llmapi_timeout_s(make(model="owner/big")) == 300 + 7200


def test_a_version_without_a_container(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_module, "find_runner", lambda backend, image: Runner(image))
    with pytest.raises(EnvironmentMissing, match=r"No recorded Triton container holds TensorRT-LLM 1\.3\.0rc24"):
        find_llmapi_runner(make("1.3.0rc24"))
    assert find_llmapi_runner(make("1.2.1")).image.startswith("nvcr.io/nvidia/tritonserver:26.07")
