"""Which Triton container holds which TensorRT-LLM and TensorRT: a plan file loads with the same TensorRT only."""

from __future__ import annotations

import functools
import json
from dataclasses import dataclass

from trt_spec.plan.toolchain.profile import DATA_DIR

CONTAINERS_FILE = DATA_DIR / "containers.json"


@dataclass(frozen=True)
class Container:
    """A row of Triton's compatibility matrix; ``driver`` is the one the image was made for."""

    triton: str
    container: str
    tensorrt_llm: str
    tensorrt: str
    cuda: str
    driver: str


@functools.cache
def load_containers() -> tuple[Container, ...]:
    """All recorded containers, the newest first."""
    return tuple(Container(**row) for row in json.loads(CONTAINERS_FILE.read_text(encoding="utf-8")))


def find_container(image: str) -> Container | None:
    """The container of an image name or tag ("24.03-trtllm-python-py3"), None if it is not recorded."""
    tag = image.rpartition(":")[2]
    return next((row for row in load_containers() if row.container.rpartition(":")[2] == tag), None)


def containers_with(tensorrt_llm: str) -> tuple[Container, ...]:
    """The containers that hold exactly this TensorRT-LLM version, the newest first."""
    return tuple(row for row in load_containers() if row.tensorrt_llm == tensorrt_llm)
