"""What is deployed and served must be what the spec says and what was built of it."""

from __future__ import annotations

from trt_spec.deploy.llmapi import resolve_llmapi_id
from trt_spec.deploy.ownership import read_marker
from trt_spec.errors import SpecError
from trt_spec.plan.manifest import Manifest, load_manifest, resolve_deployment_id
from trt_spec.plan.workspace import Workspace
from trt_spec.spec.model import Spec


def load_built(place: Workspace, spec: Spec) -> Manifest:
    """The manifest of a build of ``spec``, with its ``serve`` section. Raises SpecError for the build of another."""
    manifest = load_manifest(place)
    check_same_spec(spec, manifest.spec)
    return manifest.model_copy(update={"spec": spec})


def check_same_spec(spec: Spec, built: Spec) -> None:
    """Raise SpecError where a spec asks for another build than the one that is there; where it listens may differ."""
    differing = [name for name in Spec.model_fields if name != "serve" and getattr(spec, name) != getattr(built, name)]
    if differing:
        raise SpecError(
            f"The spec was changed since it was built: {', '.join(differing)}.",
            remedy="Run `trtspec build` with it first.",
        )


def check_deployed(place: Workspace, spec: Spec | None) -> None:
    """Raise SpecError unless a workspace has a repository, and that of the spec and build that are there now."""
    if not place.repository.is_dir():
        raise SpecError(
            f"{place.repository} does not exist: nothing is deployed there.", remedy="Run `trtspec deploy` first."
        )
    if spec is not None and spec.backend == "llmapi":
        origin, expected = "spec", resolve_llmapi_id(spec)
    elif place.manifest.is_file():
        manifest = load_manifest(place) if spec is None else load_built(place, spec)
        origin, expected = "build", resolve_deployment_id(manifest)
    else:
        return
    if (read_marker(place.repository) or {}).get("deployment_id") != expected:
        raise SpecError(
            f"{place.repository} was deployed from another {origin} than the one that is there now.",
            remedy="Run `trtspec deploy` first.",
        )
