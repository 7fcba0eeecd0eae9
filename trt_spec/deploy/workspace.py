"""From what a build recorded to a deployment, and from what a user names to the workspace and server that are meant."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from trt_spec.deploy.deployment import Deployment
from trt_spec.deploy.launch import LaunchOptions
from trt_spec.deploy.ownership import MARKER_FILE, read_marker
from trt_spec.deploy.repository import write_repository
from trt_spec.deploy.server import SERVER_FILE
from trt_spec.errors import EnvironmentMissing, SpecError
from trt_spec.plan.manifest import Manifest, load_manifest, resolve_deployment_id
from trt_spec.plan.workspace import WORKSPACES, Workspace, resolve_workspace
from trt_spec.spec.load import load_spec
from trt_spec.spec.model import Spec
from trt_spec.util.files import exclusive

LOCAL_BACKENDS = ("onnx",)  # what the embedded Triton can serve


def deploy_workspace(workspace: Workspace, spec: Spec | None = None) -> Path:
    """Write the model repository of a built workspace and return its path.

    With ``spec`` given, raises SpecError if the build was made from another one; ports and host may differ.
    """
    manifest = load_manifest(workspace)
    if spec is not None:
        _check_same_spec(spec, manifest.spec)
    with exclusive(workspace.root):
        return write_repository(resolve_deployment(manifest, workspace), workspace.repository)


def resolve_deployment(manifest: Manifest, workspace: Workspace) -> Deployment:
    """Return what the repository needs of a build. The KV budget is a full batch of sequences at their longest."""
    spec = manifest.spec
    target, draft = manifest.engines["target"], manifest.engines.get("draft")
    longest = max(entry.max_seq_len for entry in manifest.engines.values())
    target_path = workspace.engine("target").absolute()
    return Deployment(
        name=spec.name,
        id=resolve_deployment_id(manifest),
        tensorrt_llm=spec.tensorrt_llm,
        target_engine=target_path,
        draft_engine=None if draft is None else workspace.engine("draft").absolute(),
        tokenizer_dir=target_path,
        max_draft_len=0 if draft is None else spec.speculation.max_draft_len,
        max_input_len=spec.limits.max_input_len,
        max_output_len=spec.limits.max_output_len,
        max_seq_len=target.max_seq_len,
        max_batch_size=spec.limits.max_batch_size,
        kv_cache_tokens=longest * spec.limits.max_batch_size,
    )


def resolve_launch(target: Path, workspace: Path | None, overrides: Mapping[str, Any]) -> LaunchOptions:
    """Return what to start for a spec file, a workspace or a model repository.

    Host and ports come from the spec, where one is known, then from ``overrides`` (fields of LaunchOptions). The
    server's own files go to ``workspace``, which is that of the spec or repository if None.
    """
    place, spec = _resolve_place(target, workspace)
    if spec is not None and spec.backend not in LOCAL_BACKENDS:
        raise EnvironmentMissing(
            f"{target} is for backend {spec.backend}, which NVIDIA's Triton container serves on a GPU host; "
            "`trtspec serve` starts the embedded CPU server.",
            remedy="Rehearse the pair with backend: onnx.",
        )
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
        options = replace(options, **spec.serve.model_dump())
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
        _check_same_spec(spec, manifest.spec)
    deployed = (read_marker(place.repository) or {}).get("deployment_id")
    if deployed != resolve_deployment_id(manifest):
        raise SpecError(
            f"{place.repository} was deployed from another build than the one that is there now.",
            remedy="Run `trtspec deploy` first.",
        )


def _check_same_spec(spec: Spec, built: Spec) -> None:
    differing = [name for name in Spec.model_fields if name != "serve" and getattr(spec, name) != getattr(built, name)]
    if differing:
        raise SpecError(
            f"The spec was changed since it was built: {', '.join(differing)}.",
            remedy="Run `trtspec build` with it first.",
        )
