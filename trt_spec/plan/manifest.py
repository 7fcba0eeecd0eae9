"""manifest.json: what a build made, from which spec; where build, deploy and verify meet."""

from __future__ import annotations

import hashlib

from pydantic import BaseModel, ConfigDict, ValidationError

from trt_spec.errors import SpecError
from trt_spec.plan.workspace import Workspace
from trt_spec.spec.model import Spec


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
    ``kv_cache_tokens`` is the planned size of its KV cache, ``logits_dtype`` the type of the logits it gives.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    fingerprint: str
    source: str
    vocab_size: int
    max_seq_len: int
    max_draft_len: int
    built_with: BuiltWith | None = None
    kv_cache_tokens: int | None = None
    logits_dtype: str | None = None


class Manifest(BaseModel):
    """The outputs of one workspace, by role; reloads to an equal spec."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    trtspec: str
    spec: Spec
    engines: dict[str, EngineEntry]


def resolve_deployment_id(manifest: Manifest) -> str:
    """Digest of what is served: the engines and the spec, but for where it listens. Equal ids answer alike."""
    spec = manifest.spec.model_dump_json(exclude={"serve"})
    engines = "".join(f"{role}={entry.fingerprint};" for role, entry in sorted(manifest.engines.items()))
    return hashlib.sha256(f"{engines}{spec}".encode()).hexdigest()


def render_manifest(manifest: Manifest) -> str:
    return manifest.model_dump_json(indent=2) + "\n"


def load_manifest(workspace: Workspace) -> Manifest:
    """The manifest of a finished build; SpecError if there is none or it is not ours."""
    path = workspace.manifest
    if not path.is_file():
        raise SpecError(f"{path} does not exist: nothing is built there.", remedy="Run `trtspec build SPEC` first.")
    try:
        return Manifest.model_validate_json(path.read_bytes())
    except ValidationError as error:
        fault = error.errors()[0]
        where = ".".join(map(str, fault["loc"]))
        raise SpecError(
            f"{path} is not a manifest of this version of trtspec ({where}: {fault['msg']}).",
            remedy="Run `trtspec build SPEC` again.",
        ) from None
