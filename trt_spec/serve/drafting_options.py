"""What a deployment says of drafting: the orchestrator's parameters, and what they mean for one request."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, get_args

from .admission import CacheTokens
from .drafting import Source
from .engine_calls import Accept
from .token_answer import SourceChoice, SpeculationRequest
from .triton_request import BadRequest


@dataclass(frozen=True)
class DraftingOptions:
    """A parameter that is not there means its default: the draft model, acceptance by equality, admission by number.

    ``cache`` is what both engines' caches hold, None admits requests by their number alone; a draft engine of which
    nothing is said holds any. ``target_logits_width`` are the columns of the logits that the target engine takes, its
    vocabulary padded to its ranks; 0 for its vocabulary.
    ``draft_len_by_running`` is where adaptive lengths start; None fixes every length.
    ``drafts_ahead`` lets the draft model go on while the target verifies, where that is measured to pay.
    """

    draft_source: SourceChoice = "model"
    accept: Accept = "tokens"
    cache: CacheTokens | None = None
    takes_retention: bool = False
    target_logits_width: int = 0
    draft_len_by_running: str | None = None
    drafts_ahead: bool = False

    @classmethod
    def from_parameters(cls, parameters: Mapping[str, str]) -> DraftingOptions:
        target, draft = (parameters.get(f"max_inflight_tokens_{role}") or "0" for role in ("target", "draft"))
        return cls(
            draft_source=_choice(parameters, "draft_source", get_args(SourceChoice), "model"),
            accept=_choice(parameters, "accept", get_args(Accept), "tokens"),
            cache=CacheTokens(int(target), int(draft) or sys.maxsize) if int(target) else None,
            takes_retention=_flag(parameters, "engine_takes_retention"),
            target_logits_width=int(parameters.get("target_logits_width") or 0),
            draft_len_by_running=parameters.get("draft_len_by_running") if _flag(parameters, "adaptive") else None,
            drafts_ahead=_flag(parameters, "draft_ahead"),
        )

    def sources(self, request: SpeculationRequest, *, has_draft_model: bool) -> frozenset[Source]:
        """Who may draft for a request; BadRequest if it asks for somebody who is not there."""
        wish = request.source
        if wish is not None and not request.draft_len:
            raise BadRequest(f"draft_source is {wish}, but this request drafts nothing (num_draft_tokens is 0).")
        if wish in ("model", "auto") and not has_draft_model:
            raise BadRequest(f"draft_source is {wish}, but this deployment has no draft model; ngram needs none.")
        choice = wish or self.draft_source
        if choice == "ngram" or not has_draft_model:
            return frozenset({"ngram"})
        return frozenset({"model"}) if choice == "model" else frozenset({"model", "ngram"})

    def acceptance(self, request: SpeculationRequest) -> Accept:
        """How drafts are accepted; BadRequest if the client wants logits that this deployment does not have."""
        if request.uses_draft_logits and self.accept == "tokens":
            raise BadRequest(
                "use_draft_logits true is not supported here: drafts are accepted where the target picks the same "
                "token, which gives the same distribution. Deploy with speculation.accept logits, or leave it out."
            )
        return self.accept


def _flag(parameters: Mapping[str, str], name: str) -> bool:
    return parameters.get(name, "").lower() == "true"


def _choice(parameters: Mapping[str, str], name: str, choices: tuple[Any, ...], default: Any) -> Any:
    value = parameters.get(name) or default
    if value not in choices:
        raise ValueError(f"parameter {name} is {value!r}, expected {', '.join(choices)}")
    return value
