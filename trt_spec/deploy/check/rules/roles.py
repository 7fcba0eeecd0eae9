"""Who speculates in a repository: which models are engines, which is target or draft, and who calls them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from trt_spec.deploy.check.kinds import find_kind, is_ours
from trt_spec.deploy.check.rules.reading import parameter
from trt_spec.deploy.check.view import ModelView, RepositoryView
from trt_spec.serve.contract import DRAFT_MODEL, TARGET_MODEL


@dataclass(frozen=True)
class Caller:
    """A Python model that calls the engines: our orchestrator, or NVIDIA's BLS. ``draft`` is None if it names none."""

    model: ModelView
    is_ours: bool
    target: str
    draft: str | None


@dataclass(frozen=True)
class Roles:
    """``engines`` are the engine models by name; ``target`` and ``draft`` are of them, None where there is none."""

    engines: Mapping[str, ModelView]
    callers: tuple[Caller, ...]
    target: str | None
    draft: str | None

    @property
    def speculates(self) -> bool:
        """Whether a draft engine proposes tokens to a target engine."""
        return self.target is not None and self.draft is not None

    def speculating(self) -> Iterator[tuple[str, ModelView]]:
        """Target and draft by role, none if the repository does not speculate."""
        if self.target is not None and self.draft is not None:
            yield "target", self.engines[self.target]
            yield "draft", self.engines[self.draft]


def resolve_roles(view: RepositoryView) -> Roles:
    """The roles of a repository: as its callers name them, else by the names that NVIDIA's README gives the engines."""
    kinds = {name: find_kind(model) for name, model in view.models.items()}
    engines = {name: model for name, model in view.models.items() if kinds[name] == "engine"}
    callers = tuple(_read_caller(model) for name, model in view.models.items() if kinds[name] == "orchestrator")
    named = next((caller for caller in callers if caller.draft in engines), None)
    target = named.target if named else next((caller.target for caller in callers), TARGET_MODEL)
    draft = named.draft if named else DRAFT_MODEL
    return Roles(
        engines=engines,
        callers=callers,
        target=target if target in engines else None,
        draft=draft if draft in engines and draft != target else None,
    )


def _read_caller(model: ModelView) -> Caller:
    return Caller(
        model=model,
        is_ours=is_ours(model),
        target=parameter(model, "tensorrt_llm_model_name") or TARGET_MODEL,
        draft=parameter(model, "tensorrt_llm_draft_model_name"),
    )
