"""Who speculates in a repository: which models are engines, which is target or draft, and who calls them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from trt_spec.deploy.check.kinds import find_kind, is_ours
from trt_spec.deploy.check.rules.reading import integer, parameter
from trt_spec.deploy.check.view import ModelView, RepositoryView
from trt_spec.deploy.parameter_names import DRAFT_NAME, TARGET_NAME
from trt_spec.serve.contract import DRAFT_MODEL, TARGET_MODEL

MAX_DRAFT_LEN = "max_draft_len"  # of our orchestrator


@dataclass(frozen=True)
class Caller:
    """A Python model that calls the engines: our orchestrator, or NVIDIA's BLS. ``draft`` is None if it names none."""

    model: ModelView
    is_ours: bool
    target: str
    draft: str | None

    @property
    def looks_up(self) -> bool:
        """Whether it drafts without a draft model, by n-gram look-up."""
        return self.is_ours and self.draft is None and (integer(self.model, MAX_DRAFT_LEN) or 0) > 0


@dataclass(frozen=True)
class Roles:
    """``engines`` are the engine models by name; ``target`` and ``draft`` are of them, None where there is none."""

    engines: Mapping[str, ModelView]
    callers: tuple[Caller, ...]
    target: str | None
    draft: str | None

    @property
    def speculates(self) -> bool:
        """Whether a target engine gets drafted tokens: from a draft engine, or looked up by the orchestrator."""
        looks_up = any(caller.looks_up for caller in self.callers)
        return self.target is not None and (self.draft is not None or looks_up)

    def speculating(self) -> Iterator[tuple[str, ModelView]]:
        """Target and, where there is one, draft by role; none if the repository does not speculate."""
        if self.speculates and self.target is not None:
            yield "target", self.engines[self.target]
            if self.draft is not None:
                yield "draft", self.engines[self.draft]

    def taking_part(self) -> Iterator[tuple[str | None, ModelView]]:
        """Engine models that speculation is meant for, by role: all of them if a caller's names lead nowhere."""
        if self.speculates or not any(caller.draft for caller in self.callers):
            yield from self.speculating()
            return
        roles = {self.target: "target", self.draft: "draft"}
        for name, model in self.engines.items():
            yield roles.get(name), model


def resolve_roles(view: RepositoryView) -> Roles:
    """The roles of a repository: as its callers name them, else by the names that NVIDIA's README gives the engines.

    Where one of a caller's two names leads nowhere or to the other's engine, it means the only engine that is left.
    """
    kinds = {name: find_kind(model) for name, model in view.models.items()}
    engines = {name: model for name, model in view.models.items() if kinds[name] == "engine"}
    callers = tuple(_read_caller(model) for name, model in view.models.items() if kinds[name] == "orchestrator")
    target, draft = _name_pair(callers, engines)
    target = target if target in engines else None
    return Roles(engines, callers, target, draft if draft in engines and draft != target else None)


def _name_pair(callers: tuple[Caller, ...], engines: Mapping[str, ModelView]) -> tuple[str | None, str | None]:
    asking = [caller for caller in callers if caller.draft is not None]
    caller = next((row for row in asking if row.draft in engines), next(iter(asking), None))
    if caller is None:
        return next((row.target for row in callers), TARGET_MODEL), DRAFT_MODEL
    if caller.target == caller.draft and caller.target in engines:
        other = _only_other(caller.target, engines)
        return (other, caller.draft) if caller.draft == DRAFT_MODEL else (caller.target, other)
    target = caller.target if caller.target in engines else _only_other(caller.draft, engines)
    return target, caller.draft if caller.draft in engines else _only_other(target, engines)


def _only_other(taken: str | None, engines: Mapping[str, ModelView]) -> str | None:
    left = [name for name in engines if name != taken]
    return left[0] if len(left) == 1 else None


def _read_caller(model: ModelView) -> Caller:
    return Caller(
        model=model,
        is_ours=is_ours(model),
        target=parameter(model, TARGET_NAME) or TARGET_MODEL,
        draft=parameter(model, DRAFT_NAME),
    )
