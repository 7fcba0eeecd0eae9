"""A deployment with all that starts it: the model repository, and the launch files of one kind of host.

triton             WORKSPACE/repository, and WORKSPACE/triton/launch.sh for GPU hosts
compose k8s slurm  WORKSPACE/<target>/ with its files and a repository that names engines as the container sees them
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from trt_spec.deploy.built_engines import check_built_engines
from trt_spec.deploy.deployed import load_built
from trt_spec.deploy.host.container import ALL_ADDRESSES
from trt_spec.deploy.llmapi import plan_served, resolve_llmapi_id, write_llmapi
from trt_spec.deploy.load_time import sum_engine_bytes
from trt_spec.deploy.ownership import (
    check_replaceable,
    digest_owned,
    owned_folder,
    remove_owned_folder,
    write_owned_folder,
    write_texts,
)
from trt_spec.deploy.repository import write_repository
from trt_spec.deploy.resolve import resolve_deployment
from trt_spec.deploy.shell_paths import check_path
from trt_spec.deploy.targets.address import plain_address
from trt_spec.deploy.targets.compose import render_compose
from trt_spec.deploy.targets.confinement import USER_ID
from trt_spec.deploy.targets.k8s import render_k8s
from trt_spec.deploy.targets.slurm import render_slurm
from trt_spec.deploy.targets.target import CONTAINER_ROOT, GpuTarget
from trt_spec.deploy.targets.triton import ADDRESS, SCRIPT, render_triton, triton_repository
from trt_spec.deploy.workspace import deploy_workspace
from trt_spec.errors import SpecError
from trt_spec.plan.launch import plan_launch
from trt_spec.plan.llmapi import plan_llmapi
from trt_spec.plan.llmapi_launch import plan_llmapi_launch
from trt_spec.plan.manifest import Manifest, resolve_deployment_id
from trt_spec.plan.openai_launch import BUILD_IMAGE, IMAGE, MODULE
from trt_spec.plan.placement import plan_placement
from trt_spec.plan.toolchain import resolve_profile
from trt_spec.plan.workspace import Workspace
from trt_spec.spec.model import Spec, TargetName
from trt_spec.util.files import exclusive

FILES_KIND = "launch files"
FIRST_FREE_PORT = 1024  # those below are for root and CAP_NET_BIND_SERVICE, unless the network's settings say otherwise


@dataclass(frozen=True)
class _Host:
    """A kind of host. ``address`` is what Triton binds there, that of the spec if None.

    ``owns_repository``: its containers see the workspace as CONTAINER_ROOT, so it has a repository that says so.
    ``is_confined``: its server is no root and has no capabilities.
    """

    render: Callable[[GpuTarget], dict[str, str]]
    address: str | None = None
    may_spawn: bool = True
    owns_repository: bool = True
    is_confined: bool = False


_HOSTS: Mapping[TargetName, _Host] = {
    "triton": _Host(render_triton, address=ADDRESS, owns_repository=False),
    # Who gets in is for the published ports to say, and for the network policy.
    "compose": _Host(render_compose, address=ALL_ADDRESSES, is_confined=True),
    "k8s": _Host(render_k8s, address=ALL_ADDRESSES, is_confined=True),
    "slurm": _Host(render_slurm, may_spawn=False),  # its containers share the node's network
}


@dataclass(frozen=True)
class Deployed:
    """What was written: the model repository, and the folder of launch files with its files (None where none are).

    ``notes`` are sentences for the user: what was left out, and what may surprise.
    """

    repository: Path
    folder: Path | None = None
    files: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def deploy_to(place: Workspace, spec: Spec, to: TargetName) -> Deployed:
    """Write the deployment of a spec, built if its backend needs that, for one kind of host; nothing is half written.

    Raises SpecError for a build of another spec or engines that are not those of the build, a host that cannot run the
    placement, and a destination that holds anything else: every one is looked at before the first is written.
    """
    host, folder = _HOSTS[to], place.root.absolute() / to
    check_path(place.root)
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
        return _deploy_llmapi(place, spec, folder)
    manifest = load_built(place, spec)
    check_built_engines(manifest, place)
    target = resolve_gpu_target(manifest, place, to)
    if not host.owns_repository:
        return _deploy_script(place, manifest, target, folder)
    deployment = resolve_deployment(manifest, place, CONTAINER_ROOT, target.placement)
    with exclusive(place.root), owned_folder(folder, FILES_KIND, _about(target)) as partial:
        repository = write_repository(deployment, partial / place.repository.name)
        texts = host.render(replace(target, repository_digest=digest_owned(repository)))
        write_texts(partial, texts)
    notes = (*_judge_ports(spec), *_describe_image(spec)) if host.is_confined else _describe_endpoint(spec)
    return Deployed(folder / place.repository.name, folder, tuple(texts), notes)


def _deploy_script(place: Workspace, manifest: Manifest, target: GpuTarget, folder: Path) -> Deployed:
    """The workspace's own repository, and what starts it from there."""
    texts, deployment = render_triton(target), resolve_deployment(manifest, place)
    with exclusive(place.root):
        check_replaceable(folder, FILES_KIND)
        repository = write_repository(deployment, place.repository)
        write_owned_folder(folder, FILES_KIND, texts, _about(target))
    return Deployed(repository, folder, tuple(texts), _describe_endpoint(manifest.spec))


def _deploy_llmapi(place: Workspace, spec: Spec, folder: Path) -> Deployed:
    """The same for backend llmapi; without a recorded container there is nothing that a script could start."""
    target = None if plan_served(spec).image is None else resolve_llmapi_target(spec, place)
    texts = {} if target is None else render_triton(target)
    place.root.mkdir(parents=True, exist_ok=True)
    with exclusive(place.root):
        check_replaceable(folder, FILES_KIND)
        repository = write_llmapi(place, spec)
        if target is not None:
            write_owned_folder(folder, FILES_KIND, texts, _about(target))
            return Deployed(repository, folder, tuple(texts))
        remove_owned_folder(folder, FILES_KIND)  # it would start the container of another version
    note = f"{folder.name}/{SCRIPT} is left out: TensorRT-LLM {spec.tensorrt_llm} needs an image of your own."
    return Deployed(repository, notes=(note,))


def _judge_ports(spec: Spec) -> tuple[str, ...]:
    low = [f"serve.{name}_port {port}" for name, port in spec.serve.all_ports.items() if port < FIRST_FREE_PORT]
    if not low:
        return ()
    return (
        f"{' and '.join(low)}: below {FIRST_FREE_PORT}, where user {USER_ID} without capabilities may listen only if "
        "the container's net.ipv4.ip_unprivileged_port_start allows it.",
    )


def _describe_image(spec: Spec) -> tuple[str, ...]:
    if spec.serve.openai_port is None:
        return ()
    return (
        f"serve.openai_port: the endpoint's image is {IMAGE}, made from trtspec's source by `{BUILD_IMAGE}`; NVIDIA's "
        "container has none of it.",
    )


def _describe_endpoint(spec: Spec) -> tuple[str, ...]:
    if spec.serve.openai_port is None:
        return ()
    return (
        "serve.openai_port: these launch files start Triton alone; `trtspec serve` starts the endpoint too, and "
        f"`python -m {MODULE}` starts it beside a Triton that runs.",
    )


def resolve_gpu_target(manifest: Manifest, place: Workspace, to: TargetName) -> GpuTarget:
    """Return what the launch files of one kind of host are derived from; the engines' sizes are read."""
    host, spec, root = _HOSTS[to], manifest.spec, str(place.root.absolute())
    placement, _ = plan_placement(spec, may_spawn=host.may_spawn)
    inside = f"{CONTAINER_ROOT}/{to}/{place.repository.name}"
    address = plain_address(spec.serve.host, "Triton listens") if host.address is None else host.address
    serve = spec.serve.model_copy(update={"host": address})
    return GpuTarget(
        spec=spec,
        image=resolve_profile(spec.tensorrt_llm, accept_derived=True).container,
        placement=placement,
        launch=plan_launch(
            placement,
            inside if host.owns_repository else triton_repository(root),
            serve,
            requests=spec.limits.max_batch_size,
        ),
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
