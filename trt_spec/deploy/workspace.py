"""From what a user names, a spec, workspace or repository, to what is written, started or stopped."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trt_spec.deploy.built_engines import check_built_engines
from trt_spec.deploy.deployed import check_deployed, load_built
from trt_spec.deploy.host.gpu_host.resolve import find_gpu_host
from trt_spec.deploy.host.launch import READY_TIMEOUT_S, LaunchOptions
from trt_spec.deploy.host.server import SERVER_FILE
from trt_spec.deploy.ownership import MARKER_FILE, read_marker
from trt_spec.deploy.repository import write_repository
from trt_spec.deploy.resolve import resolve_deployment
from trt_spec.deploy.shell_paths import check_path
from trt_spec.errors import SpecError
from trt_spec.plan.manifest import load_manifest
from trt_spec.plan.workspace import WORKSPACES, Workspace, resolve_workspace
from trt_spec.spec.load import load_spec
from trt_spec.spec.model import Serve, Spec
from trt_spec.util.files import exclusive

LOCAL_BACKENDS = ("onnx",)  # what the embedded Triton can serve


def deploy_workspace(workspace: Workspace, spec: Spec | None = None) -> Path:
    """Write the model repository of a built workspace and return its path.

    With ``spec`` given, raises SpecError if the build was made from another one; its ``serve`` section may differ, and
    counts.
    """
    check_path(workspace.root)
    manifest = load_manifest(workspace) if spec is None else load_built(workspace, spec)
    check_built_engines(manifest, workspace)
    with exclusive(workspace.root):
        return write_repository(resolve_deployment(manifest, workspace), workspace.repository)


def resolve_launch(
    target: Path, workspace: Path | None, listen: Mapping[str, Any], timeout_s: float | None = None
) -> LaunchOptions:
    """Return what to start for a spec file, a workspace or a model repository.

    Host and ports come from the spec, where one is known, then from ``listen`` (fields of its ``serve`` section; None
    for what is not given). The server's own files go to ``workspace``, which is that of the spec or repository if None.
    Backends engine and llmapi are served by this GPU host; raises as ``find_gpu_host`` does where this is none.
    """
    place, spec = _resolve_place(target, workspace)
    is_bare = target.is_dir() and spec is None and not _is_workspace(target)
    repository = (target if is_bare else place.repository).absolute()
    root = (workspace or place.root).absolute()
    gpu_host = None
    if spec is None and (read_marker(repository) or {}).get("backend") == "llmapi":
        raise SpecError(
            f"{repository} is of backend llmapi, which no CPU server runs, and does not say for which GPUs.",
            remedy="Name the spec file: `trtspec serve SPEC`.",
        )
    if spec is not None and spec.backend not in LOCAL_BACKENDS:
        gpu_host = find_gpu_host(spec, place, root)
    elif not is_bare:
        check_deployed(place, spec)
    given = {name: value for name, value in listen.items() if value is not None}
    serve = (Serve() if spec is None else spec.serve).model_copy(update=given)
    if serve.openai_port is not None and spec is not None and spec.backend == "llmapi":
        raise SpecError(
            "--openai-port is for backends engine and onnx: a model of backend llmapi is not trtspec's.",
            remedy="Leave it out; trtllm-serve gives such a model the OpenAI API.",
        )
    if timeout_s is None:
        timeout_s = READY_TIMEOUT_S if gpu_host is None else gpu_host.timeout_s
    return LaunchOptions(repository, root, serve, timeout_s, gpu_host=gpu_host)


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
