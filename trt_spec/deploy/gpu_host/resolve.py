"""From a built workspace to what serves it on this GPU host."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path

from trt_spec.deploy.gpu_host.host import GpuHost
from trt_spec.deploy.gpu_host.preflight import VISIBLE_VARIABLE, check_gpu_host, check_one_node, resolve_visible_gpus
from trt_spec.deploy.gpu_host.runner import Runner, find_runner
from trt_spec.plan.engine_record import GPU_FIELDS, parse_gpus
from trt_spec.plan.launch import Launch, plan_launch
from trt_spec.plan.manifest import Manifest
from trt_spec.plan.placement import Placement, plan_placement
from trt_spec.plan.toolchain import resolve_profile
from trt_spec.plan.workspace import Workspace
from trt_spec.spec.model import Serve, Spec
from trt_spec.util.nvidia_smi import query_gpus

LOAD_BASE_S = 300.0  # CUDA contexts, NCCL and graphs of every rank
LOAD_BYTES_PER_S = 200e6  # a slow network disk: a start must not be given up while it still reads


def find_engine_runner(spec: Spec) -> Runner:
    """Where the engines of a spec can be served here. Raises EnvironmentMissing if nowhere."""
    return find_runner(spec.backend, resolve_profile(spec.tensorrt_llm, accept_derived=True).container)


def resolve_engine_host(manifest: Manifest, place: Workspace, workspace: Path, runner: Runner) -> GpuHost:
    """What serves the engines of ``place``, checked against this machine: see ``check_gpu_host``.

    ``workspace`` takes the server's own files.
    """
    placement, _ = plan_placement(manifest.spec)
    check_one_node(placement)
    seen = parse_gpus(query_gpus(GPU_FIELDS))
    if runner.server is not None:
        seen = resolve_visible_gpus(seen, os.environ.get(VISIBLE_VARIABLE))
    check_gpu_host(manifest, place, placement, runner, seen)
    needed = 1 + max(device for placed in placement.roles.values() for device in placed.device_ids)
    return GpuHost(
        runner=runner,
        workspace=workspace,
        repository=place.repository.absolute(),
        plan=partial(_plan, placement),
        gpus=tuple(gpu.index for gpu in seen) if runner.server is not None else tuple(range(needed)),
        ranks=1 + sum(len(placed.gpus) for placed in placement.roles.values()),
        mounts=find_mounts(place.root.absolute(), workspace, *(place.engine(role) for role in manifest.engines)),
    )


def _plan(placement: Placement, repository: str, serve: Serve, gpus: int, shm_prefix: str) -> Launch:
    return plan_launch(placement, repository, serve, gpus, shm_prefix)


def find_mounts(root: Path, *folders: Path) -> tuple[Path, ...]:
    """The folders that a container must see at their own paths: ``root``, and what links below it lead to."""
    places = (folder.resolve() for folder in folders)
    return tuple(dict.fromkeys((root, *(path for path in places if not path.is_relative_to(root.resolve())))))


def ready_timeout_s(manifest: Manifest, place: Workspace) -> float:
    """How long the engines may take to load, by their size."""
    files = (file for role in manifest.engines for file in place.engine(role).glob("*.engine"))
    return LOAD_BASE_S + sum(file.stat().st_size for file in files) / LOAD_BYTES_PER_S
