"""Logits: their declared type against the engines' own, and the draft's 'fast' way to hand them over.

Sources: tensorrtllm_backend v0.18.2 inflight_batcher_llm/src/model_instance_state.cc (types are compared with every
answer; fast logits are switched off without pre-spawned ranks); no template had an open type before 0.17.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from trt_spec.deploy.check.finding import CheckFinding
from trt_spec.deploy.check.rules.reading import build_config, flag, parameter, pretrained_config
from trt_spec.deploy.check.rules.report import found, found_parameter
from trt_spec.deploy.check.rules.roles import resolve_roles
from trt_spec.deploy.check.view import ModelView, RepositoryView
from trt_spec.deploy.parameter_names import ENGINE_PATH, FAST_LOGITS, PARTICIPANT_IDS, TRITON_DTYPES

TENSORS = ("draft_logits", "context_logits", "generation_logits")


def check_engine_dtype(view: RepositoryView) -> Iterator[CheckFinding]:
    """The type of an engine model's logits tensors against the engine's logits_dtype."""
    for name, model in resolve_roles(view).engines.items():
        recorded, built = pretrained_config(view, name).get("logits_dtype"), _find_built(view, name)
        for side, tensor, dtype in _logits(model):
            if built is None or dtype == built:
                continue
            yield found(
                model,
                (side, tensor, "data_type"),
                "logits-dtype",
                "error",
                f"{name}: {tensor} is TYPE_{dtype}, the engine's logits_dtype is {recorded} (TYPE_{built})",
                "the backend refuses logits of another type than it declared",
                f"Set data_type: TYPE_{built} for all logits of the repository (logits_datatype in the template).",
                f"TYPE_{built}",
            )


def check_equal_dtype(view: RepositoryView) -> Iterator[CheckFinding]:
    """All models hand the same tensors on, so one type must run through."""
    declared = {
        (name, side, tensor): dtype for name, model in view.models.items() for side, tensor, dtype in _logits(model)
    }
    roles = resolve_roles(view)
    if not any(name == roles.target for name, _side, _tensor in declared):
        return
    # The engine's own word counts; without it that of most tensors, so that the odd one is blamed.
    recorded = _find_built(view, roles.target)
    reference = recorded or Counter(declared.values()).most_common(1)[0][0]
    source = f"the engine of {roles.target} gives TYPE_{reference}" if recorded else f"most are TYPE_{reference}"
    for (name, side, tensor), dtype in declared.items():
        if dtype == reference:
            continue
        yield found(
            view.models[name],
            (side, tensor, "data_type"),
            "logits-dtypes-differ",
            "error",
            f"{name}: {tensor} is TYPE_{dtype}, {source}",
            "the same values are handed from model to model unchanged",
            f"Set data_type: TYPE_{reference} (logits_datatype in the template).",
        )


def check_fast_logits(view: RepositoryView) -> Iterator[CheckFinding]:
    """Fast logits need both models, pre-spawned ranks and engines that keep the logits of generated tokens."""
    pair = [model for _role, model in resolve_roles(view).speculating()]
    fast = [model for model in pair if flag(model, FAST_LOGITS)]
    if not fast:
        return
    for model in pair:
        if model not in fast:
            yield _fault(
                model,
                FAST_LOGITS,
                f"{model.name}: {FAST_LOGITS} is not true, {fast[0].name} has it",
                "the draft hands over a handle that the other side must know",
                f"Set {FAST_LOGITS} to true in both models.",
            )
        if parameter(model, PARTICIPANT_IDS) is None:
            yield _fault(
                model,
                PARTICIPANT_IDS,
                f"{model.name}: {FAST_LOGITS} without participant_ids",
                "it works between pre-spawned ranks only and is switched off with a warning otherwise",
                "Give participant_ids to both models (rank 0 is the orchestrator) and start with "
                "--disable-spawn-processes.",
            )
        built = build_config(view, model.name)
        if built and not built.get("gather_generation_logits"):
            yield _fault(
                model,
                ENGINE_PATH,
                f"{model.name}: {FAST_LOGITS}, but its engine was built without gather_generation_logits",
                "the engine keeps no logits that could be handed over",
                "Build both engines with --gather_generation_logits.",
            )


def _find_built(view: RepositoryView, name: str | None) -> str | None:
    """Triton's type of an engine's logits, None where its config.json does not say."""
    recorded = pretrained_config(view, name).get("logits_dtype") if name is not None else None
    return TRITON_DTYPES.get(recorded) if isinstance(recorded, str) else None


def _fault(model: ModelView, key: str, what: str, why: str, remedy: str) -> CheckFinding:
    return found_parameter(model, key, "fast-logits", "error", what, why, remedy)


def _logits(model: ModelView) -> Iterator[tuple[str, str, str]]:
    """Side, name and type of the logits that a model takes and gives."""
    if model.config is None:
        return
    for side, tensors in (("input", model.config.inputs), ("output", model.config.outputs)):
        for tensor in tensors:
            if tensor.name in TENSORS:
                yield side, tensor.name, tensor.dtype


RULES = (check_engine_dtype, check_equal_dtype, check_fast_logits)
