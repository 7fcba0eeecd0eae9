from __future__ import annotations

from pathlib import Path

import pytest

from trt_spec.deploy.host.gpu_host.runner import Runner, find_runner
from trt_spec.errors import EnvironmentMissing

IMAGE = "nvcr.io/nvidia/tritonserver:26.07-trtllm-python-py3"


def install(folder: Path, *names: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        (folder / name).write_text("#!/bin/sh\nexit 0\n")
        (folder / name).chmod(0o755)


@pytest.fixture
def triton(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of an empty Triton installation, its bin the only folder on PATH."""
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.delenv("NVIDIA_TRITON_SERVER_VERSION", raising=False)
    return tmp_path


def test_natively_in_nvidias_container(triton: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(triton / "bin", "tritonserver", "mpirun", "docker")
    (triton / "backends" / "tensorrtllm").mkdir(parents=True)
    monkeypatch.setenv("NVIDIA_TRITON_SERVER_VERSION", "26.07")
    assert find_runner("engine", IMAGE) == Runner("26.07-trtllm-python-py3", triton / "bin" / "tritonserver")
    monkeypatch.delenv("NVIDIA_TRITON_SERVER_VERSION")
    assert find_runner("engine", IMAGE).image == ""  # not known, so not judged


def test_a_triton_without_what_engines_need_leaves_it_to_docker(triton: Path) -> None:
    install(triton / "bin", "tritonserver", "mpirun", "docker")
    assert find_runner("engine", IMAGE) == Runner(IMAGE)
    assert find_runner("llmapi", IMAGE).server == triton / "bin" / "tritonserver"  # its model is Python


@pytest.mark.parametrize(
    ("programs", "words"),
    [
        ((), "there is no tritonserver and there is no docker"),
        (("tritonserver",), "has no mpirun beside it and there is no docker"),
        (("tritonserver", "mpirun"), "has no backend tensorrtllm"),
    ],
)
def test_what_is_missing_is_said(triton: Path, programs: tuple[str, ...], words: str) -> None:
    install(triton / "bin", *programs)
    with pytest.raises(EnvironmentMissing, match=words) as error:
        find_runner("engine", IMAGE)
    assert IMAGE in error.value.remedy
    assert "backend: onnx" in error.value.remedy
