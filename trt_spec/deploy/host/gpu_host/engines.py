"""Serving built engines on this GPU host."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from trt_spec.deploy.host.gpu_host.preflight import check_gpu_host
from trt_spec.deploy.host.gpu_host.runner import Runner
from trt_spec.deploy.host.gpu_host.served import Served
from trt_spec.deploy.load_time import load_time_s, sum_engine_bytes
from trt_spec.plan.engine_record import SeenGpu
from trt_spec.plan.launch import plan_launch
from trt_spec.plan.manifest import load_manifest
from trt_spec.plan.placement import Placement
from trt_spec.plan.workspace import Workspace
from trt_spec.spec.model import Spec


def check_engines(
    spec: Spec, place: Workspace, placement: Placement, runner: Runner, seen: Sequence[SeenGpu]
) -> Served:
    """What serves the engines of ``place``, which fit this machine: see ``check_gpu_host``."""
    manifest = load_manifest(place)
    check_gpu_host(manifest, place, placement, runner, seen)
    visible_gpus = None if runner.server is None else len(seen)  # natively all of them, also those without an engine
    return Served(
        plan=partial(plan_launch, placement, requests=manifest.spec.limits.max_batch_size, visible_gpus=visible_gpus),
        folders=tuple(place.engine(role) for role in manifest.engines),
        timeout_s=load_time_s(sum_engine_bytes(manifest, place)),
    )
