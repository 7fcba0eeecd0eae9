"""Parameters that say how trtspec's orchestrator drafts: their values, and what contradicts models and engines.

All may be missing: a repository of an older trtspec always drafts max_draft_len with its draft model.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import get_args

from trt_spec.deploy.check.finding import CheckFinding
from trt_spec.deploy.check.rules.reading import build_config, flag, integer
from trt_spec.deploy.check.rules.report import found_parameter, listed
from trt_spec.deploy.check.rules.roles import MAX_DRAFT_LEN, Caller, Roles, resolve_roles
from trt_spec.deploy.check.view import RepositoryView
from trt_spec.deploy.parameter_names import FAST_LOGITS, KV_TOKENS
from trt_spec.spec.model import Accept, DraftSource

DRAFT_SOURCE = "draft_source"
LENGTHS = "draft_len_by_running"
ACCEPT = "accept"
INFLIGHT_TOKENS = {"target": "max_inflight_tokens_target", "draft": "max_inflight_tokens_draft"}
CHOICES = {
    DRAFT_SOURCE: get_args(DraftSource),
    ACCEPT: get_args(Accept),
    "adaptive": ("true", "false"),
    "draft_ahead": ("true", "false"),
    "engine_takes_retention": ("true", "false"),
}
LOGITS_WIDTH = "target_logits_width"
COUNTS = (*INFLIGHT_TOKENS.values(), LOGITS_WIDTH)
KEYS = frozenset({*CHOICES, LENGTHS, *COUNTS})
_LENGTH_LIST = re.compile(r"[0-9]{1,9}(,[0-9]{1,9})*", re.ASCII)
_COUNT = re.compile(r"0*[1-9][0-9]{0,17}", re.ASCII)
_WRITE_AGAIN = "Write the repository again with `trtspec deploy`, or correct it here."
_NOT_STARTED = "the orchestrator does not start, or takes it for another value"


def check_drafting(view: RepositoryView) -> Iterator[CheckFinding]:
    """What trtspec's own models are told of drafting."""
    roles = resolve_roles(view)
    for caller in roles.callers:
        if caller.is_ours:
            yield from _check_values(caller)
            yield from _check_source(caller)
            yield from _check_lengths(caller)
            yield from _check_accept(view, roles, caller)
            yield from _check_inflight_tokens(roles, caller)


def _check_values(caller: Caller) -> Iterator[CheckFinding]:
    model = caller.model
    for key, choices in CHOICES.items():
        value = _value(caller, key)
        if value is not None and value not in choices:
            expected = f"{', '.join(choices[:-1])} or {choices[-1]}"
            yield _impossible(caller, key, f"{model.name}: {key} is {value[:60]!r}, expected {expected}")
    lengths = _value(caller, LENGTHS)
    if lengths is not None and not _LENGTH_LIST.fullmatch(lengths):
        yield _impossible(
            caller, LENGTHS, f"{model.name}: {LENGTHS} is {lengths[:60]!r}, expected lengths such as 4,4,3,2,1,0"
        )
    for key in COUNTS:
        tokens = _value(caller, key)
        if tokens is not None and not _COUNT.fullmatch(tokens):
            yield _impossible(
                caller, key, f"{model.name}: {key} is {tokens[:60]!r}, expected a whole number of at least 1"
            )


def _check_source(caller: Caller) -> Iterator[CheckFinding]:
    source = _value(caller, DRAFT_SOURCE) or "model"
    if caller.draft is not None or source == "ngram" or not integer(caller.model, MAX_DRAFT_LEN):
        return
    yield found_parameter(
        caller.model,
        DRAFT_SOURCE,
        "orchestrator-draft-source",
        "error",
        f"{caller.model.name}: {DRAFT_SOURCE} is {source[:60]}, and there is no draft model",
        "it cannot draft what max_draft_len asks for",
        f"Set {DRAFT_SOURCE} to ngram, name the draft model, or set {MAX_DRAFT_LEN} to 0 for the target alone.",
    )


def _check_lengths(caller: Caller) -> Iterator[CheckFinding]:
    text, longest = _value(caller, LENGTHS), integer(caller.model, MAX_DRAFT_LEN)
    if text is None or not _LENGTH_LIST.fullmatch(text):
        return
    lengths = [int(word) for word in text.split(",")]
    over = sorted({length for length in lengths if longest is not None and length > longest})
    if over:
        yield found_parameter(
            caller.model,
            LENGTHS,
            "orchestrator-draft-lengths",
            "error",
            f"{caller.model.name}: {LENGTHS} has {listed([str(length) for length in over])}, {MAX_DRAFT_LEN} is "
            f"{longest}",
            "the target's engine refuses more drafted tokens than that",
            f"Lower the lengths to {longest}, or deploy a spec with a larger speculation.max_draft_len.",
        )
    batch = caller.model.config.max_batch_size if caller.model.config else 0
    if len(lengths) > max(batch, 1):
        yield found_parameter(
            caller.model,
            LENGTHS,
            "orchestrator-draft-lengths",
            "warning",
            f"{caller.model.name}: {LENGTHS} has {len(lengths)} entries, max_batch_size is {batch}",
            "so many requests are never in flight; the table may be meant for another engine",
            f"Give at most {max(batch, 1)} entries: the last one stands for all beyond.",
        )


def _check_accept(view: RepositoryView, roles: Roles, caller: Caller) -> Iterator[CheckFinding]:
    accept = _value(caller, ACCEPT)
    if accept not in ("logits", "fast_logits"):
        return
    for fault in _accept_faults(view, roles, caller, accept):
        yield found_parameter(
            caller.model,
            ACCEPT,
            "orchestrator-accept",
            "error",
            f"{caller.model.name}: {ACCEPT} is {accept}, {fault}",
            "rounds that should be accepted by logits fail, or fall back to tokens",
            f"Set {ACCEPT} to tokens, or deploy a spec with that speculation.accept.",
        )


def _accept_faults(view: RepositoryView, roles: Roles, caller: Caller, accept: str) -> Iterator[str]:
    if caller.draft is None:
        yield "and there is no draft model whose logits could decide"
        return
    pair = [roles.engines[name] for name in (caller.target, caller.draft) if name in roles.engines]
    slow = [model.name for model in pair if not flag(model, FAST_LOGITS)]
    if accept == "fast_logits" and slow:
        yield f"and {FAST_LOGITS} is not true in {listed(slow)}"
    for model in pair:
        built = build_config(view, model.name)
        # ONNX engines give logits of any token; their config.json has no such setting.
        if "gather_generation_logits" in built and not built["gather_generation_logits"]:
            yield f"and the engine of {model.name} was built without gather_generation_logits"


def _check_inflight_tokens(roles: Roles, caller: Caller) -> Iterator[CheckFinding]:
    for role, name in (("target", caller.target), ("draft", caller.draft)):
        key = INFLIGHT_TOKENS[role]
        admitted = integer(caller.model, key)
        engine = roles.engines.get(name) if name is not None else None
        cached = integer(engine, KV_TOKENS) if engine is not None else None
        if admitted is not None and cached is not None and admitted > cached:
            yield found_parameter(
                caller.model,
                key,
                "orchestrator-inflight-tokens",
                "warning",
                f"{caller.model.name}: {key} is {admitted}, {name} caches {cached} ({KV_TOKENS})",
                "requests would be admitted whose cached prefixes drive each other out between rounds",
                f"Set {key} to {cached}.",
                becomes=str(cached),
            )


def _value(caller: Caller, key: str) -> str | None:
    """A parameter as it stands, None if it is missing or empty."""
    return caller.model.config.parameters.get(key) or None if caller.model.config else None


def _impossible(caller: Caller, key: str, what: str) -> CheckFinding:
    return found_parameter(caller.model, key, "orchestrator-parameter", "error", what, _NOT_STARTED, _WRITE_AGAIN)


RULES = (check_drafting,)
