"""A deployment with all that starts it: the model repository, and the launch files of one kind of host.

triton             WORKSPACE/repository, and WORKSPACE/triton/launch.sh for GPU hosts
compose k8s slurm  WORKSPACE/<target>/ with its files and a repository that names engines as the container sees them
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from trt_spec.deploy.deployed import load_built
from trt_spec.deploy.host.container import ALL_ADDRESSES
from trt_spec.deploy.llmapi import resolve_llmapi_id
from trt_spec.deploy.load_time import sum_engine_bytes
from trt_spec.deploy.ownership import owned_folder, write_owned_folder, write_texts
from trt_spec.deploy.repository import write_repository
from trt_spec.deploy.resolve import resolve_deployment
from trt_spec.deploy.targets.compose import render_compose
from trt_spec.deploy.targets.k8s import render_k8s
from trt_spec.deploy.targets.slurm import render_slurm
from trt_spec.deploy.targets.target import CONTAINER_ROOT, GpuTarget
from trt_spec.deploy.targets.triton import ADDRESS, render_triton, triton_repository
from trt_spec.deploy.workspace import deploy_workspace
from trt_spec.errors import SpecError
from trt_spec.plan.launch import plan_launch
from trt_spec.plan.llmapi import plan_llmapi
from trt_spec.plan.llmapi_launch import plan_llmapi_launch
from trt_spec.plan.manifest import Manifest, resolve_deployment_id
from trt_spec.plan.placement import plan_placement
from trt_spec.plan.toolchain import resolve_profile
from trt_spec.plan.workspace import Workspace
from trt_spec.spec.model import Spec, TargetName
from trt_spec.util.files import exclusive

FILES_KIND = "launch files"


@dataclass(frozen=True)
class _Host:
    """A kind of host. ``address`` is what Triton binds there, that of the spec if None.

    ``owns_repository``: its containers see the workspace as CONTAINER_ROOT, so it has a repository that says so.
    """

    render: Callable[[GpuTarget], dict[str, str]]
    address: str | None = None
    may_spawn: bool = True
    owns_repository: bool = True


_HOSTS: Mapping[TargetName, _Host] = {
    "triton": _Host(render_triton, address=ADDRESS, owns_repository=False),
    "compose": _Host(render_compose, address=ALL_ADDRESSES),  # who gets in is for the published ports to say
    "k8s": _Host(render_k8s, address=ALL_ADDRESSES),  # and here for the network policy
    "slurm": _Host(render_slurm, may_spawn=False),  # its containers share the node's network
}


@dataclass(frozen=True)
class Deployed:
    """What was written: the model repository, and the folder of launch files with its files (None where none are)."""

    repository: Path
    folder: Path | None = None
    files: tuple[str, ...] = ()


def deploy_to(place: Workspace, spec: Spec, to: TargetName) -> Deployed:
    """Write the deployment of a spec, built if its backend needs that, for one kind of host; nothing is half written.

    Raises SpecError for a build of another spec, a host that cannot run the placement, and a destination that holds
    anything else.
    """
    host, folder = _HOSTS[to], place.root.absolute() / to
    if host.owns_repository and spec.backend != "engine":
        reason = {
            "onnx": "is the rehearsal on this machine's CPU, by the Triton server that `trtspec serve` starts",
            "llmapi": "reads its checkpoints from folders outside the workspace, which these files do not mount",
        }[spec.backend]
        raise SpecError(
            f"Backend {spec.backend} {reason}: it is deployed with --to triton only.",
            remedy="Leave --to out, or set `backend: engine`.",
        )
    if spec.backend == "onnx":
        return Deployed(deploy_workspace(place, spec))
    if spec.backend == "llmapi":
        target = resolve_llmapi_target(spec, place)
        return _deploy_script(place, target, host.render(target), folder)
    manifest = load_built(place, spec)
    target = resolve_gpu_target(manifest, place, to)
    texts = host.render(target)
    if not host.owns_repository:
        return _deploy_script(place, target, texts, folder)
    deployment = resolve_deployment(manifest, place, CONTAINER_ROOT, target.placement)
    with exclusive(place.root), owned_folder(folder, FILES_KIND, _about(target)) as partial:
        write_repository(deployment, partial / place.repository.name)
        write_texts(partial, texts)
    return Deployed(folder / place.repository.name, folder, tuple(texts))


def _deploy_script(place: Workspace, target: GpuTarget, texts: Mapping[str, str], folder: Path) -> Deployed:
    """The workspace's own repository, and what starts it from there."""
    repository = deploy_workspace(place, target.spec)
    with exclusive(place.root):
        write_owned_folder(folder, FILES_KIND, texts, _about(target))
    return Deployed(repository, folder, tuple(texts))


def resolve_gpu_target(manifest: Manifest, place: Workspace, to: TargetName) -> GpuTarget:
    """Return what the launch files of one kind of host are derived from; the engines' sizes are read."""
    host, spec, root = _HOSTS[to], manifest.spec, str(place.root.absolute())
    placement, _ = plan_placement(spec, may_spawn=host.may_spawn)
    inside = f"{CONTAINER_ROOT}/{to}/{place.repository.name}"
    serve = spec.serve if host.address is None else spec.serve.model_copy(update={"host": host.address})
    return GpuTarget(
        spec=spec,
        image=resolve_profile(spec.tensorrt_llm, accept_derived=True).container,
        placement=placement,
        launch=plan_launch(placement, inside if host.owns_repository else triton_repository(root), serve),
        engine_bytes=sum_engine_bytes(manifest, place),
        deployment_id=resolve_deployment_id(manifest),
        workspace=root,
    )


def resolve_llmapi_target(spec: Spec, place: Workspace) -> GpuTarget:
    """The same for backend llmapi, which has launch files for GPU hosts only. Raises SpecError without a container."""
    root = str(place.root.absolute())
    serve = spec.serve.model_copy(update={"host": ADDRESS})
    return GpuTarget(
        spec=spec,
        image=plan_llmapi(spec).require_image(),
        placement=plan_placement(spec)[0],
        launch=plan_llmapi_launch(spec, triton_repository(root), serve),
        engine_bytes=0,
        deployment_id=resolve_llmapi_id(spec),
        workspace=root,
    )


def _about(target: GpuTarget) -> dict[str, str]:
    return {"deployment": target.spec.name, "deployment_id": target.deployment_id}
