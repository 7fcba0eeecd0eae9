"""From what a build recorded to a deployment, and from what a user names to the workspace and server that are meant."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from trt_spec.deploy.gpu_host.llmapi import find_llmapi_runner, llmapi_timeout_s, resolve_llmapi_host
from trt_spec.deploy.gpu_host.resolve import find_engine_runner, ready_timeout_s, resolve_engine_host
from trt_spec.deploy.launch import LaunchOptions
from trt_spec.deploy.llmapi import deploy_llmapi
from trt_spec.deploy.ownership import MARKER_FILE, read_marker
from trt_spec.deploy.repository import write_repository
from trt_spec.deploy.resolve import resolve_deployment
from trt_spec.deploy.server import SERVER_FILE
from trt_spec.errors import SpecError
from trt_spec.plan.manifest import load_manifest, resolve_deployment_id
from trt_spec.plan.workspace import WORKSPACES, Workspace, resolve_workspace
from trt_spec.spec.load import load_spec
from trt_spec.spec.model import Spec
from trt_spec.util.files import exclusive

LOCAL_BACKENDS = ("onnx",)  # what the embedded Triton can serve


def deploy_workspace(
    workspace: Workspace, spec: Spec | None = None, *, repository: Path | None = None, root: str | None = None
) -> Path:
    """Write the model repository of a built workspace and return its path.

    It goes to ``repository``, the workspace's own one if None, and names engines below ``root``, where a container sees
    the workspace under another path. With ``spec`` given, raises SpecError if the build was made from another one; its
    ``serve`` section may differ, and counts.
    """
    if spec is not None and spec.backend == "llmapi":  # nothing is built for it
        return deploy_llmapi(workspace, spec, repository)
    manifest = load_manifest(workspace)
    if spec is not None:
        check_same_spec(spec, manifest.spec)
        manifest = manifest.model_copy(update={"spec": spec})
    with exclusive(workspace.root):
        return write_repository(resolve_deployment(manifest, workspace, root), repository or workspace.repository)


def resolve_launch(target: Path, workspace: Path | None, overrides: Mapping[str, Any]) -> LaunchOptions:
    """Return what to start for a spec file, a workspace or a model repository.

    Host and ports come from the spec, where one is known, then from ``overrides`` (fields of LaunchOptions). The
    server's own files go to ``workspace``, which is that of the spec or repository if None. Backend engine is served
    by this GPU host, checked against its engines; raises EnvironmentMissing where this is none.
    """
    place, spec = _resolve_place(target, workspace)
    find = find_llmapi_runner if spec is not None and spec.backend == "llmapi" else find_engine_runner
    runner = find(spec) if spec is not None and spec.backend not in LOCAL_BACKENDS else None
    is_bare = target.is_dir() and spec is None and not _is_workspace(target)
    repository = target if is_bare else place.repository
    if not repository.is_dir():
        raise SpecError(
            f"{repository} does not exist: nothing is deployed there.", remedy="Run `trtspec deploy` first."
        )
    if not is_bare:
        _check_deployed(place, spec)
    options = LaunchOptions(repository=repository.absolute(), workspace=(workspace or place.root).absolute())
    if spec is not None:
        options = replace(options, **spec.serve.model_dump(exclude={"max_queue_size"}))
    if runner is not None and spec is not None and spec.backend == "llmapi":
        gpu_host = resolve_llmapi_host(spec, place, options.workspace, runner)
        options = replace(options, gpu_host=gpu_host, timeout_s=llmapi_timeout_s(spec))
    elif runner is not None:
        manifest = load_manifest(place)
        gpu_host = resolve_engine_host(manifest, place, options.workspace, runner)
        options = replace(options, gpu_host=gpu_host, timeout_s=ready_timeout_s(manifest, place))
    return replace(options, **{name: value for name, value in overrides.items() if value is not None})


def resolve_stop(target: Path | None, workspace: Path | None = None) -> list[Path]:
    """Return the workspaces whose server is meant: of a spec, workspace or repository, or all below ./workspace."""
    if workspace is not None:
        return [workspace.absolute()]
    if target is None:
        return sorted(file.parent for file in Path(WORKSPACES).glob(f"*/{SERVER_FILE}"))
    return [_resolve_place(target, None)[0].root]


def _resolve_place(target: Path, root: Path | None) -> tuple[Workspace, Spec | None]:
    """Return the workspace that ``target`` means, and its spec where one is known."""
    if target.is_file():
        named = load_spec(target)
        return resolve_workspace(named.name, root), named
    if not target.is_dir():
        raise SpecError(
            f"{target} does not exist, expected a spec file, a workspace or a model repository.",
            remedy="Write a spec with `trtspec init NAME`.",
        )
    folder = target.absolute()
    if folder.name == Workspace(folder.parent).repository.name and _is_workspace(folder.parent):
        folder = folder.parent
    if not _is_workspace(folder):
        return resolve_workspace(folder.name, root), None
    place = Workspace(folder)
    spec = load_manifest(place).spec if place.manifest.is_file() else None
    return place, spec


def _is_workspace(folder: Path) -> bool:
    place = Workspace(folder.absolute())
    signs = (place.manifest, place.repository / MARKER_FILE, folder / SERVER_FILE)
    return any(file.is_file() for file in signs)


def _check_deployed(place: Workspace, spec: Spec | None) -> None:
    """What is served must be what the spec says: a repository of an older build or spec is refused."""
    if not place.manifest.is_file():
        return
    manifest = load_manifest(place)
    if spec is not None:
        check_same_spec(spec, manifest.spec)
    deployed = (read_marker(place.repository) or {}).get("deployment_id")
    if deployed != resolve_deployment_id(manifest):
        raise SpecError(
            f"{place.repository} was deployed from another build than the one that is there now.",
            remedy="Run `trtspec deploy` first.",
        )


def check_same_spec(spec: Spec, built: Spec) -> None:
    """Raise SpecError where a spec asks for another build than the one that is there; where it listens may differ."""
    differing = [name for name in Spec.model_fields if name != "serve" and getattr(spec, name) != getattr(built, name)]
    if differing:
        raise SpecError(
            f"The spec was changed since it was built: {', '.join(differing)}.",
            remedy="Run `trtspec build` with it first.",
        )
