"""manifest.json: what a build made, from which spec; where build, deploy and verify meet."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from trt_spec.errors import SpecError
from trt_spec.plan.workspace import Workspace
from trt_spec.spec.model import Spec

_BUILD_AGAIN = "Run `trtspec build SPEC` again."
Count = Annotated[int, Field(ge=1)]


class BuiltWith(BaseModel):
    """What a TensorRT engine is tied to; ``compute_capability`` is "9.0" for SM 90, ``container`` None if native."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    tensorrt_llm: str
    tensorrt: str
    container: str | None
    gpu: str
    compute_capability: str


class EngineEntry(BaseModel):
    """One built engine; lengths in tokens, ``max_seq_len`` includes ``max_draft_len``.

    It lies at ``workspace.engine(role)``, wherever the workspace is moved to. The rest is for TensorRT engines:
    ``kv_cache_tokens`` is the planned size of its KV cache, ``logits_dtype`` the type of the logits it gives,
    ``medusa_heads`` how many heads it drafts with.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    fingerprint: str
    source: str
    vocab_size: Count
    max_seq_len: Count
    max_draft_len: Annotated[int, Field(ge=0)]
    built_with: BuiltWith | None = None
    kv_cache_tokens: Count | None = None
    logits_dtype: str | None = None
    medusa_heads: Count | None = None


class Manifest(BaseModel):
    """The outputs of one workspace, by role; reloads to an equal spec.

    ``draft_len_by_running`` is the plan's draft length at 1, 2, ... requests in flight, the last one for all beyond;
    None in those of an older trtspec.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    trtspec: str
    spec: Spec
    engines: dict[str, EngineEntry]
    draft_len_by_running: tuple[Annotated[int, Field(ge=0)], ...] | None = None


def resolve_deployment_id(manifest: Manifest) -> str:
    """Digest of what is served: the engines and the spec, but for where it listens and what verify asks of it.

    Equal ids answer alike.
    """
    spec = manifest.spec.model_dump_json(exclude={"serve", "verify"})
    engines = "".join(f"{role}={entry.fingerprint};" for role, entry in sorted(manifest.engines.items()))
    return hashlib.sha256(f"{engines}{spec}".encode()).hexdigest()


def render_manifest(manifest: Manifest) -> str:
    return manifest.model_dump_json(indent=2) + "\n"


def load_manifest(workspace: Workspace) -> Manifest:
    """The manifest of a finished build; SpecError if there is none, it is not ours, or an engine is not in it."""
    path = workspace.manifest
    if not path.is_file():
        raise SpecError(f"{path} does not exist: nothing is built there.", remedy="Run `trtspec build SPEC` first.")
    try:
        manifest = Manifest.model_validate_json(path.read_bytes())
    except ValidationError as error:
        fault = error.errors()[0]
        where = ".".join(map(str, fault["loc"]))
        what = f"{where}: {fault['msg']}" if where else fault["msg"]
        raise SpecError(f"{path} is not a manifest of this version of trtspec ({what}).", remedy=_BUILD_AGAIN) from None
    _check_roles(path, manifest)
    return manifest


def _check_roles(path: Path, manifest: Manifest) -> None:
    expected, found = set(manifest.spec.models()), set(manifest.engines)
    if found != expected:
        names = " and ".join(sorted(found, reverse=True)) or "none"
        wanted = " and ".join(sorted(expected, reverse=True))
        raise SpecError(f"{path} records engines of {names}, its spec asks for {wanted}.", remedy=_BUILD_AGAIN)
