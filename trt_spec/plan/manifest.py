"""manifest.json: what a build made, from which spec; where build, deploy and verify meet."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, ValidationError

from trt_spec.errors import SpecError
from trt_spec.plan.workspace import Workspace
from trt_spec.spec.model import Spec


class EngineEntry(BaseModel):
    """One built engine; lengths in tokens, ``max_seq_len`` includes ``max_draft_len``.

    It lies at ``workspace.engine(role)``, wherever the workspace is moved to.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    fingerprint: str
    source: str
    vocab_size: int
    max_seq_len: int
    max_draft_len: int


class Manifest(BaseModel):
    """The outputs of one workspace, by role; reloads to an equal spec."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    trtspec: str
    spec: Spec
    engines: dict[str, EngineEntry]


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
