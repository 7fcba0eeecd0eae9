"""A deployment with all that starts it: the model repository, and the launch files of one kind of host.

triton             WORKSPACE/repository, and WORKSPACE/triton/launch.sh for GPU hosts
compose k8s slurm  WORKSPACE/<target>/ with its files and a repository that names engines as the container sees them
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from trt_spec.deploy.llmapi import deploy_llmapi, resolve_llmapi_id
from trt_spec.deploy.ownership import check_replaceable, write_marker
from trt_spec.deploy.repository import write_repository
from trt_spec.deploy.resolve import resolve_deployment
from trt_spec.deploy.targets.compose import render_compose
from trt_spec.deploy.targets.k8s import render_k8s
from trt_spec.deploy.targets.slurm import render_slurm
from trt_spec.deploy.targets.target import (
    CONTAINER_ROOT,
    GpuTarget,
    container_repository,
    container_serve,
    count_gpus,
)
from trt_spec.deploy.targets.triton import FOLDER, render_triton, triton_repository
from trt_spec.deploy.workspace import check_same_spec, deploy_workspace
from trt_spec.errors import SpecError
from trt_spec.plan.engine_record import MODEL_NAMES
from trt_spec.plan.launch import plan_launch
from trt_spec.plan.llmapi import plan_llmapi
from trt_spec.plan.llmapi_launch import plan_llmapi_launch
from trt_spec.plan.manifest import Manifest, load_manifest, resolve_deployment_id
from trt_spec.plan.placement import Placement, plan_placement
from trt_spec.plan.toolchain import resolve_profile
from trt_spec.plan.workspace import Workspace
from trt_spec.spec.model import Spec
from trt_spec.util.files import atomic_directory, exclusive

TargetName = Literal["triton", "compose", "k8s", "slurm"]
TARGETS: tuple[TargetName, ...] = get_args(TargetName)
FILES_KIND = "launch files"

_RENDER: Mapping[TargetName, Callable[[GpuTarget], dict[str, str]]] = {
    "triton": render_triton,
    "compose": render_compose,
    "k8s": render_k8s,
    "slurm": render_slurm,
}


@dataclass(frozen=True)
class Deployed:
    """What was written: the model repository, and the folder of launch files with its files (None where none are)."""

    repository: Path
    folder: Path | None = None
    files: tuple[str, ...] = ()


def deploy_to(place: Workspace, spec: Spec, to: TargetName) -> Deployed:
    """Write the deployment of a built spec for one kind of host; nothing is left half written.

    Raises SpecError for a build of another spec, a host that cannot run the placement, and a destination that holds
    anything else.
    """
    if to == "triton":
        return _deploy_triton(place, spec)
    if spec.backend != "engine":
        reason = {
            "onnx": "is the rehearsal on this machine's CPU, by the Triton server that `trtspec serve` starts",
            "llmapi": "reads its checkpoints from folders outside the workspace, which these files do not mount",
        }[spec.backend]
        raise SpecError(
            f"Backend {spec.backend} {reason}: it is deployed with --to triton only.",
            remedy="Leave --to out, or set `backend: engine`.",
        )
    manifest = load_manifest(place)
    check_same_spec(spec, manifest.spec)
    manifest = manifest.model_copy(update={"spec": spec})
    placement = _plan_placement(spec, to)
    target = resolve_gpu_target(manifest, place, placement, to)
    texts = _RENDER[to](target)
    deployment = resolve_deployment(manifest, place, CONTAINER_ROOT, placement)
    folder = place.root.absolute() / to
    with exclusive(place.root):
        check_replaceable(folder, FILES_KIND)
        with atomic_directory(folder) as partial:
            write_repository(deployment, partial / "repository")
            _write_files(partial, texts, target)
    return Deployed(folder / "repository", folder, tuple(texts))


def _deploy_triton(place: Workspace, spec: Spec) -> Deployed:
    if spec.backend == "onnx":
        return Deployed(deploy_workspace(place, spec))
    if spec.backend == "llmapi":
        target = _resolve_llmapi_target(spec, place)
        texts = render_triton(target)
        repository = deploy_llmapi(place, spec)
    else:
        manifest = load_manifest(place)
        check_same_spec(spec, manifest.spec)
        manifest = manifest.model_copy(update={"spec": spec})
        target = resolve_gpu_target(manifest, place, _plan_placement(spec, "triton"), "triton")
        texts = render_triton(target)
        repository = deploy_workspace(place, spec)
    folder = place.root.absolute() / FOLDER
    with exclusive(place.root):
        check_replaceable(folder, FILES_KIND)
        with atomic_directory(folder) as partial:
            _write_files(partial, texts, target)
    return Deployed(repository, folder, tuple(texts))


def _plan_placement(spec: Spec, to: TargetName) -> Placement:
    return plan_placement(spec, may_spawn=to != "slurm")[0]


def resolve_gpu_target(manifest: Manifest, place: Workspace, placement: Placement, to: TargetName) -> GpuTarget:
    """Return what the launch files of one kind of host are derived from; the engines' sizes are read."""
    spec, root = manifest.spec, place.root.absolute()
    gpus, nodes = count_gpus(placement)
    in_container = to in ("compose", "k8s")
    repository = triton_repository(str(root)) if to == "triton" else container_repository(to)
    serve = container_serve(spec.serve) if in_container else spec.serve
    engines = [file for role in manifest.engines for file in place.engine(role).glob("*.engine")]
    return GpuTarget(
        spec=spec,
        image=resolve_profile(spec.tensorrt_llm, accept_derived=True).container,
        launch=plan_launch(placement, repository, serve, gpus),
        gpus_per_node=gpus,
        nodes=nodes,
        engine_bytes=sum(file.stat().st_size for file in engines),
        models=tuple(MODEL_NAMES[role] for role in placement.roles),
        deployment_id=resolve_deployment_id(manifest),
        workspace=str(root),
    )


def _resolve_llmapi_target(spec: Spec, place: Workspace) -> GpuTarget:
    root, image = str(place.root.absolute()), plan_llmapi(spec).image
    if image is None:
        raise SpecError(
            f"No Triton container is known to hold TensorRT-LLM {spec.tensorrt_llm}.",
            remedy="Set tensorrt_llm to 1.2.1 or older, or run Triton yourself on the repository of `trtspec serve`.",
        )
    ranks = spec.target.tensor_parallel * spec.target.pipeline_parallel
    return GpuTarget(
        spec=spec,
        image=image,
        launch=plan_llmapi_launch(spec, triton_repository(root)),
        gpus_per_node=ranks,
        nodes=1,
        engine_bytes=0,
        models=(MODEL_NAMES["target"],),
        deployment_id=resolve_llmapi_id(spec),
        workspace=root,
    )


def _write_files(folder: Path, texts: Mapping[str, str], target: GpuTarget) -> None:
    for name, text in texts.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
        if text.startswith("#!"):
            file.chmod(0o755)
    write_marker(folder, FILES_KIND, {"deployment": target.spec.name, "deployment_id": target.deployment_id})
