"""What every launch file is derived from, and where a workspace lies inside a container."""

from __future__ import annotations

from dataclasses import dataclass

from trt_spec.deploy.container import ALL_ADDRESSES
from trt_spec.plan.launch import Launch
from trt_spec.plan.placement import Placement
from trt_spec.spec.model import Serve, Spec

CONTAINER_ROOT = "/models"  # the workspace, read-only, inside every container


@dataclass(frozen=True)
class GpuTarget:
    """What a launch file needs of a built deployment: everything in it is derived, nothing is read from disk.

    ``launch`` names the repository as the container sees it (``container_repository``). ``gpus_per_node`` and ``nodes``
    are those of ``count_gpus``. ``engine_bytes`` is what is read at the start, ``workspace`` the absolute path of the
    workspace on the host that wrote the files.
    """

    spec: Spec
    image: str
    launch: Launch
    gpus_per_node: int
    nodes: int
    engine_bytes: int
    models: tuple[str, ...]
    deployment_id: str
    workspace: str


def container_repository(target: str) -> str:
    """The model repository of a target (``compose``, ``k8s``, ``slurm``) as its container sees it."""
    return f"{CONTAINER_ROOT}/{target}/repository"


def container_serve(serve: Serve) -> Serve:
    """Where Triton listens inside a container: everywhere, for what is published decides who gets in."""
    return serve.model_copy(update={"host": ALL_ADDRESSES})


def count_gpus(placement: Placement) -> tuple[int, int]:
    """GPUs that each node must show a container, and nodes.

    The engines are configured with device ids of their node, so a container must see every id up to the highest, also
    where the placement leaves the first ones idle.
    """
    device_ids = [device for placed in placement.roles.values() for device in placed.device_ids]
    nodes = [node for placed in placement.roles.values() for node in placed.nodes]
    return max(device_ids) + 1, max(nodes) + 1
