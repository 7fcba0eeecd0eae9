"""Where tritonserver runs on this machine: natively, as in NVIDIA's container, or in a container that docker starts."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from trt_spec.deploy.host.container import judge_runtime
from trt_spec.deploy.parameter_names import ENGINE_BACKEND
from trt_spec.errors import EnvironmentMissing
from trt_spec.plan.launch import TRITONSERVER
from trt_spec.spec.model import Backend

MPIRUN = "mpirun"
TENSORRT_LLM = "tensorrt_llm"
VERSION_VARIABLE = "NVIDIA_TRITON_SERVER_VERSION"  # "26.07" in NVIDIA's containers, as their launcher reads it


@dataclass(frozen=True)
class Runner:
    """``server`` is the tritonserver of this machine, None where ``image`` is started.

    ``image`` is then the container that the version needs; natively it is the one that this machine seems to be, empty
    if it does not say.
    """

    image: str
    server: Path | None = None
    tensorrt_llm: str | None = None  # installed here; None if that is not known


def find_runner(backend: Backend, image: str) -> Runner:
    """Natively with tritonserver, its backend and mpirun, else docker. Raises EnvironmentMissing without both."""
    server = _find_server()
    lacks = _judge_native(server, backend)
    if lacks is None:
        return Runner(_own_image(), server, _installed_version())
    silent = judge_runtime()
    if silent is None:
        return Runner(image)
    raise EnvironmentMissing(
        f"Backend {backend} is served by NVIDIA's Triton container on a GPU host, and here {lacks} and {silent}; "
        "`trtspec serve` alone brings the CPU server, for backend onnx.",
        remedy=f"Install docker with NVIDIA's container toolkit (image {image}), or run trtspec inside that container; "
        "on this machine, rehearse the pair with backend: onnx.",
    )


def _find_server() -> Path | None:
    found = shutil.which("tritonserver") or shutil.which(TRITONSERVER)
    return None if found is None else Path(found)


def _judge_native(server: Path | None, backend: Backend) -> str | None:
    """What keeps tritonserver from running natively, in words; None if nothing does."""
    if server is None:
        return "there is no tritonserver"
    if shutil.which(MPIRUN) is None:
        return f"{server} has no {MPIRUN} beside it"
    backends = server.resolve().parent.parent / "backends"
    if backend == "engine" and not (backends / ENGINE_BACKEND).is_dir():
        return f"{server} has no backend {ENGINE_BACKEND} (in {backends})"
    return None


def _own_image() -> str:
    release = os.environ.get(VERSION_VARIABLE, "")
    return f"{release}-trtllm-python-py3" if release else ""


def _installed_version() -> str | None:
    """It is not imported: that takes a minute and a GPU."""
    try:
        return version(TENSORRT_LLM)
    except PackageNotFoundError:
        return None
