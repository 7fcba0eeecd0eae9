"""`trtspec serve` of backend llmapi: what is checked before the start, and the command."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from trt_spec.deploy.host.gpu_host import resolve, visible
from trt_spec.deploy.host.gpu_host.host import GpuHost
from trt_spec.deploy.host.gpu_host.llmapi import llmapi_timeout_s
from trt_spec.deploy.host.gpu_host.resolve import find_gpu_host
from trt_spec.deploy.host.gpu_host.runner import Runner
from trt_spec.deploy.launch_files import deploy_to
from trt_spec.errors import EnvironmentMissing, SpecError
from trt_spec.plan.workspace import Workspace
from trt_spec.spec.model import Serve, Spec

NATIVE = Runner("", Path("/opt/tritonserver/bin/tritonserver"), "1.2.1")
DOCKER = Runner("image:tag")
SERVE = Serve(http_port=1, grpc_port=2, metrics_port=3)
TOKEN = "0123abcd"


@pytest.fixture
def place(tmp_path: Path) -> Workspace:
    return Workspace(tmp_path / "workspace")


@pytest.fixture
def make(tmp_path: Path, place: Workspace, monkeypatch: pytest.MonkeyPatch) -> Any:
    """make(...) -> a deployed spec whose target is a folder; nvidia-smi lists eight GPUs."""
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    lines = "".join(f"{index}, NVIDIA H100, 9.0, 81559, 590.44\n" for index in range(8))
    monkeypatch.setattr(visible, "query_gpus", lambda fields: lines)
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
        deploy_to(place, spec, "triton")
        return spec

    return made


@pytest.fixture
def find(place: Workspace, monkeypatch: pytest.MonkeyPatch) -> Any:
    """find(spec, runner) -> the GPU host, where this machine has that runner."""

    def found(spec: Spec, runner: Runner) -> GpuHost:
        monkeypatch.setattr(resolve, "find_runner", lambda backend, image: runner)
        return find_gpu_host(spec, place, place.root)

    return found


def test_natively_it_is_one_process(make: Any, find: Any) -> None:
    start = find(make(), NATIVE).command(SERVE, TOKEN)
    assert start.argv[0] == "/opt/tritonserver/bin/tritonserver"
    assert {
        "--http-port=1",
        "--grpc-port=2",
        "--backend-config=python,shm-region-prefix-name=trtspec_0123abcd_0_",
    } <= set(start.argv)
    assert start.environment["HF_HUB_OFFLINE"] == "1"


def test_in_a_container_it_sees_the_models(make: Any, find: Any, tmp_path: Path) -> None:
    start = find(make(tensor_parallel=4), DOCKER).command(SERVE, TOKEN)
    assert f"type=bind,source={tmp_path}/big model,target={tmp_path}/big model,readonly" in start.argv
    assert '"device=0,1,2,3"' in start.argv and "image:tag" in start.argv
    assert start.argv.count("trtllm-llmapi-launch") == 4


def test_gpus_that_are_not_there(make: Any, find: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    with pytest.raises(EnvironmentMissing, match="up to index 3, and 2 are visible"):
        find(make(tensor_parallel=4), NATIVE)


def test_another_spec_or_version_is_not_served(make: Any, find: Any) -> None:
    spec = make()
    make(tensor_parallel=2)
    with pytest.raises(SpecError, match="deployed from another spec"):
        find(spec, NATIVE)
    spec = make("1.1.0")
    with pytest.raises(SpecError, match=r"1\.2\.1 is installed here"):
        find(spec, NATIVE)


def test_a_container_is_not_left_to_download(make: Any, find: Any) -> None:
    spec = make(model="owner/big")
    with pytest.raises(SpecError, match="owner/big: a container would download it"):
        find(spec, DOCKER)
    find(spec, NATIVE)


def test_a_folder_without_a_checkpoint(make: Any, find: Any, tmp_path: Path) -> None:
    spec = make(model=str(tmp_path))
    with pytest.raises(SpecError, match=r"holds no config\.json"):
        find(spec, NATIVE)


def test_the_time_to_load_follows_the_files(make: Any) -> None:
    assert llmapi_timeout_s(make()) == pytest.approx(300 + 1000 / 200e6)
    assert llmapi_timeout_s(make(model="owner/big")) == 300 + 7200


def test_a_version_without_a_container(make: Any, find: Any) -> None:
    spec = make("1.3.0rc24")
    with pytest.raises(SpecError, match=r"No recorded Triton container holds TensorRT-LLM 1\.3\.0rc24"):
        find(spec, Runner("of your own"))
    find(spec, Runner("", NATIVE.server))


def test_gpus_of_the_spec_count_among_the_visible_ones(make: Any, find: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,5,6,7")
    spec = make(tensor_parallel=2, gpus=[2, 3])
    start = find(spec, NATIVE).command(SERVE, TOKEN)
    assert start.environment["CUDA_VISIBLE_DEVICES"] == "6,7"


def test_a_container_is_shown_all_that_the_indices_count(make: Any, find: Any) -> None:
    start = find(make(tensor_parallel=2, gpus=[2, 3]), DOCKER).command(SERVE, TOKEN)
    assert '"device=0,1,2,3"' in start.argv
    assert "CUDA_VISIBLE_DEVICES=2,3" in start.argv


def test_a_build_of_another_backend_in_the_workspace_does_not_matter(make: Any, find: Any, place: Workspace) -> None:
    spec = make()
    place.manifest.write_text("{}")
    find(spec, NATIVE)
