"""From a deployed workspace to what serves it on this GPU host, checked before anything starts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from trt_spec.deploy.deployed import check_deployed
from trt_spec.deploy.host.gpu_host import engines, llmapi
from trt_spec.deploy.host.gpu_host.host import GpuHost
from trt_spec.deploy.host.gpu_host.preflight import check_one_node
from trt_spec.deploy.host.gpu_host.runner import Runner, find_runner
from trt_spec.deploy.host.gpu_host.visible import see_gpus
from trt_spec.plan.llmapi import plan_llmapi
from trt_spec.plan.placement import plan_placement
from trt_spec.plan.toolchain import resolve_profile
from trt_spec.plan.workspace import Workspace
from trt_spec.spec.model import Spec


def find_gpu_host(spec: Spec, place: Workspace, workspace: Path) -> GpuHost:
    """What serves the repository of ``place`` on this machine; ``workspace`` takes the server's own files.

    Raises EnvironmentMissing where it cannot be served here: no Triton and no docker, GPUs that are not there or of
    another architecture. SpecError for a repository of another spec or build, for files that are not whole, and for
    what neither this machine nor its container can do.
    """
    runner = _find_runner(spec)
    check_deployed(place, spec)
    placement, _ = plan_placement(spec)
    check_one_node(placement)
    seen = see_gpus(runner)
    check = engines.check_engines if spec.backend == "engine" else llmapi.check_models
    served = check(spec, place, placement, runner, seen)
    return GpuHost(
        runner=runner,
        workspace=workspace,
        repository=place.repository.absolute(),
        plan=served.plan,
        gpus=tuple(range(placement.visible_gpus)),
        processes=placement.process_count(0),
        mounts=find_mounts(place.root.absolute(), workspace, *served.folders),
        timeout_s=served.timeout_s,
    )


def _find_runner(spec: Spec) -> Runner:
    """Natively or in the recorded container."""
    if spec.backend == "engine":
        return find_runner(spec.backend, resolve_profile(spec.tensorrt_llm, accept_derived=True).container)
    plan = plan_llmapi(spec)
    runner = find_runner(spec.backend, plan.image or f"of your own, with TensorRT-LLM {spec.tensorrt_llm}")
    if runner.server is None:
        plan.require_image()
    return runner


def find_mounts(root: Path, *folders: Path) -> tuple[Path, ...]:
    """The folders that a container must see at their own paths: ``root``, others, and what links lead to."""
    return tuple(dict.fromkeys((root, *_list_outside(root, folders))))


def _list_outside(root: Path, folders: tuple[Path, ...]) -> Iterator[Path]:
    for folder in folders:
        if not folder.is_relative_to(root):
            yield folder
        if not folder.resolve().is_relative_to(root.resolve()):
            yield folder.resolve()
