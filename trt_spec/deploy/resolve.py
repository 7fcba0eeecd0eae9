"""From what a build recorded to a deployment: paths as the server sees them, GPUs, MPI ranks, KV budgets."""

from __future__ import annotations

from pathlib import PurePosixPath

from trt_spec.deploy.deployment import Deployment, EngineDeployment
from trt_spec.deploy.parameter_names import TRITON_DTYPES
from trt_spec.errors import SpecError
from trt_spec.plan.draft_lengths import default_draft_lengths
from trt_spec.plan.limits import gathers_logits
from trt_spec.plan.manifest import Manifest, resolve_deployment_id
from trt_spec.plan.placement import Placement, RolePlacement, plan_placement
from trt_spec.plan.shapes import padded_vocab_size
from trt_spec.plan.workspace import Workspace
from trt_spec.spec.medusa import Choices, resolve_choices
from trt_spec.spec.model import Role

# The backend gives logits in no other types (tensorrtllm_backend, model_instance_state.cc).
SERVED_LOGITS_DTYPES = ("float32", "float16")
MAX_KV_CACHE_TOKENS = 2**31 - 1  # the backend takes a larger number for none at all (std::stoi)
_BUILD_AGAIN = "Run `trtspec build SPEC` again: finished engines are kept, the manifest is written anew."


def resolve_deployment(
    manifest: Manifest, workspace: Workspace, root: str | None = None, placement: Placement | None = None
) -> Deployment:
    """Return what the repository needs of a build.

    ``root`` is the workspace as the server sees it, where that is not its path on this machine; ``placement`` is that
    of the launch, the plan's own if None. Raises SpecError for a manifest that lacks what a GPU deployment needs, and
    for GPUs that TensorRT-LLM cannot be told.
    """
    spec, place, lengths = manifest.spec, Workspace(workspace.root.absolute()), manifest.draft_len_by_running
    if placement is None and spec.backend == "engine":
        placement = plan_placement(spec)[0]
    target = _resolve_engine("target", manifest, place, placement, root)
    draft = _resolve_engine("draft", manifest, place, placement, root) if "draft" in manifest.engines else None
    return Deployment(
        name=spec.name,
        id=resolve_deployment_id(manifest),
        tensorrt_llm=spec.tensorrt_llm,
        target=target,
        draft=draft,
        tokenizer_dir=target.folder,
        max_draft_len=spec.external_draft_len,
        max_input_len=spec.limits.max_input_len,
        max_output_len=spec.limits.max_output_len,
        max_seq_len=_usable_seq_len(manifest),
        max_batch_size=spec.limits.max_batch_size,
        vocab_size=manifest.engines["target"].vocab_size,
        draft_vocab_size=0 if draft is None else manifest.engines["draft"].vocab_size,
        max_queue_requests=spec.serve.max_queue_size,
        logits_dtype=_resolve_logits_type(manifest),
        logits_width=padded_vocab_size(manifest.engines["target"].vocab_size, spec.target.tensor_parallel),
        gathers_logits=spec.backend == "onnx" or gathers_logits(spec),
        accept="tokens" if draft is None else spec.speculation.accept,
        draft_source=spec.speculation.draft_source or ("ngram" if spec.speculation.mode == "ngram" else "model"),
        adaptive=spec.speculation.adaptive and spec.external_draft_len > 0,
        draft_len_by_running=default_draft_lengths(spec) if lengths is None else lengths,
        medusa_choices=_resolve_medusa(manifest),
    )


def _usable_seq_len(manifest: Manifest) -> int:
    """The target's, and without the positions of its own tree in mode medusa, which no caller plans for."""
    target = manifest.engines["target"]
    own = target.max_draft_len if manifest.spec.speculation.mode == "medusa" else 0
    return target.max_seq_len - own


def _resolve_medusa(manifest: Manifest) -> Choices | None:
    """The tree of Medusa heads, whose number the engine's entry records; raises SpecError for a manifest without it."""
    if manifest.spec.speculation.mode != "medusa":
        return None
    heads = manifest.engines["target"].medusa_heads
    if heads is None:
        raise SpecError("The manifest does not say how many Medusa heads the target has.", remedy=_BUILD_AGAIN)
    return resolve_choices(manifest.spec.speculation, heads)


def _resolve_engine(
    role: Role, manifest: Manifest, place: Workspace, placement: Placement | None, root: str | None
) -> EngineDeployment:
    folder = place.engine(role)
    path = str(folder) if root is None else str(PurePosixPath(root, folder.relative_to(place.root).as_posix()))
    if placement is None:
        return EngineDeployment(path, folder, _longest_batch_tokens(manifest))
    tokens = manifest.engines[role].kv_cache_tokens
    if tokens is None:
        raise SpecError(
            f"{place.manifest} does not say how many tokens the KV cache of the {role} is planned for: "
            f"an older trtspec ({manifest.trtspec}) wrote it.",
            remedy=_BUILD_AGAIN,
        )
    placed = placement.roles[role]
    device_ids, nodes = _name_devices(role, placed)
    # In the other modes the ranks are those that Triton started or spawned for this engine, and naming them is refused.
    participants = placed.participant_ids if placement.mode == "orchestrator-prespawned" else ()
    return EngineDeployment(path, folder, tokens, device_ids, participants, nodes)


def _longest_batch_tokens(manifest: Manifest) -> int:
    """A KV budget without a plan of memory: a full batch of sequences at their longest."""
    longest = max(entry.max_seq_len for entry in manifest.engines.values())
    return min(longest * manifest.spec.limits.max_batch_size, MAX_KV_CACHE_TOKENS)


def _name_devices(role: Role, placed: RolePlacement) -> tuple[tuple[int, ...], int]:
    """Device ids as TensorRT-LLM takes them, and on how many nodes each of them is meant.

    Its ids must differ, and rank r takes the one at r modulo their number (worldConfig.cpp, worldConfig.h): so an
    engine over several nodes names those of one node, and must use the same ones on each.
    """
    ids = placed.device_ids
    if len(set(ids)) == len(ids):
        return ids, 1
    nodes = len(set(placed.nodes))
    once = ids[: len(ids) // nodes]
    if once * nodes == ids and len(set(once)) == len(once):
        return once, nodes
    raise SpecError(
        f"The ranks of the {role} use GPUs {', '.join(map(str, placed.gpus))}, which are {', '.join(map(str, ids))} on "
        "their nodes: TensorRT-LLM can only be told one list for all nodes.",
        remedy=f"Choose the same GPUs on every node in {role}.gpus, or GPUs of one node.",
    )


def _resolve_logits_type(manifest: Manifest) -> str:
    """Triton's name of the logits' type; engines of backend onnx give float32."""
    found = {entry.logits_dtype or "float32" for entry in manifest.engines.values()}
    known = [TRITON_DTYPES[dtype] for dtype in found if dtype in SERVED_LOGITS_DTYPES]
    if len(found) > 1 or not known:
        raise SpecError(
            f"The engines give logits in {' and '.join(sorted(found))}, expected one of "
            f"{', '.join(SERVED_LOGITS_DTYPES)} for both.",
            remedy=_BUILD_AGAIN,
        )
    return known[0]
