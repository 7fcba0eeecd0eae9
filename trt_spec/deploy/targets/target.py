"""What every launch file is derived from, and where a workspace lies inside a container."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from trt_spec.plan.launch import Launch
from trt_spec.plan.placement import Placement
from trt_spec.spec.model import Spec

CONTAINER_ROOT = "/models"  # the workspace, read-only, inside every container


@dataclass(frozen=True)
class GpuTarget:
    """What a launch file needs of a built deployment.

    ``placement`` and ``launch`` are those of this kind of host; the launch names the repository and binds the address
    that its processes see. ``engine_bytes`` is the size of the engine files, which are read at the start,
    ``workspace`` the absolute path of the workspace on the host that wrote the files.
    """

    spec: Spec
    image: str
    placement: Placement
    launch: Launch
    engine_bytes: int
    deployment_id: str
    workspace: str


def choose_port(wanted: int, taken: Collection[int]) -> int:
    """``wanted``, or the next port that the deployment does not use itself."""
    while wanted in taken:
        wanted += 1
    return wanted
