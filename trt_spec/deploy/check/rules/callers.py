"""The engines that an orchestrator names: they must be there, take token ids, and be two (B002)."""

from __future__ import annotations

from collections.abc import Iterator

from trt_spec.deploy.check.finding import CheckFinding
from trt_spec.deploy.check.rules.reading import DRAFT_TARGET_MODES, build_config
from trt_spec.deploy.check.rules.report import found_parameter, listed
from trt_spec.deploy.check.rules.roles import Caller, resolve_roles
from trt_spec.deploy.check.view import ModelView, RepositoryView
from trt_spec.deploy.parameter_names import DRAFT_NAME, TARGET_NAME

_TOKENS = "input_ids"


def check_engine_names(view: RepositoryView) -> Iterator[CheckFinding]:
    """The models that an orchestrator calls must be there, under that very name (B002)."""
    roles = resolve_roles(view)
    engines = sorted(roles.engines)
    for caller in roles.callers:
        if caller.draft is None:
            yield from _find_uncalled(view, caller, engines)
        for key, role, name in ((TARGET_NAME, "target", caller.target), (DRAFT_NAME, "draft", caller.draft)):
            if name is None:
                continue
            if name in view.models:
                yield from _check_called(view.models[name], caller, key, role)
                continue
            have = listed(engines or sorted(view.models))
            yield found_parameter(
                caller.model,
                key,
                "model-not-found",
                "error",
                f'BLS {role} model "{name}" not found in repository (have: {have})',
                "the server gets ready, and the first request that needs the model fails",
                f"Set {key} to the folder's name of the {role} engine.",
                _only_left(caller.draft if role == "target" else caller.target, engines),
            )
        if caller.draft is not None and caller.draft == caller.target:
            yield found_parameter(
                caller.model,
                DRAFT_NAME,
                "draft-equals-target",
                "error",
                f'{caller.model.name}: target and draft model are both "{caller.target}"',
                "the same engine would draft for itself, which gains nothing and confuses its cache",
                f"Name two engines in {TARGET_NAME} and {DRAFT_NAME} (have: {listed(engines)}).",
            )


def _check_called(called: ModelView, caller: Caller, key: str, role: str) -> Iterator[CheckFinding]:
    """What is called with token ids must take them."""
    if called.config is None or any(tensor.name == _TOKENS for tensor in called.config.inputs):
        return
    what = "the model itself" if called is caller.model else f"no engine: it has no input {_TOKENS}"
    yield found_parameter(
        caller.model,
        key,
        "model-not-engine",
        "error",
        f'BLS {role} model "{called.name}" is {what}',
        "the server gets ready, and the first request that needs the model fails",
        f"Set {key} to the folder's name of the {role} engine.",
    )


def _find_uncalled(view: RepositoryView, caller: Caller, engines: list[str]) -> Iterator[CheckFinding]:
    """A second engine that is called a draft, or stands beside a target built for drafts, is there to draft.

    It may also be another instance or another model (docs/llama_multi_instance.md).
    """
    others = [name for name in engines if name != caller.target]
    is_built = build_config(view, caller.target).get("speculative_decoding_mode") in DRAFT_TARGET_MODES
    if len(others) == 1 and caller.target in view.models and (is_built or "draft" in others[0].lower()):
        yield found_parameter(
            caller.model,
            DRAFT_NAME,
            "draft-unnamed",
            "warning",
            f"{caller.model.name} names no draft model, and the repository has {others[0]}",
            "requests that ask for speculation fail, all others do without it",
            f'Set {DRAFT_NAME} to "{others[0]}".',
        )


def _only_left(taken: str | None, engines: list[str]) -> str | None:
    """The right answer is unique if one engine alone is not the one that the other role names."""
    left = [name for name in engines if name != taken]
    return left[0] if len(left) == 1 and (taken is None or taken in engines) else None


RULES = (check_engine_names,)
