"""Parameters of trtspec's orchestrator: its code reads each of them at the start, and does not start without one.

Source: trt_spec/serve/orchestrator_model.py and text_request.py (OrchestratorLimits).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import get_args

from trt_spec.deploy.check.finding import CheckFinding
from trt_spec.deploy.check.kinds import find_dialect_name
from trt_spec.deploy.check.rules.drafting import KEYS as DRAFTING
from trt_spec.deploy.check.rules.report import found_parameter, listed
from trt_spec.deploy.check.rules.roles import Caller, resolve_roles
from trt_spec.deploy.check.view import RepositoryView
from trt_spec.deploy.parameter_names import DRAFT_NAME, TARGET_NAME, TOKENIZER_DIR
from trt_spec.serve.contract import ENGINE_DRAFTS, SEED_NAMES, LogProbSource

# Lowest values. The limits are repeated here, because their own module needs packages that `check` does without.
LIMITS = {
    "max_input_len": 1,
    "max_output_len": 1,
    "max_seq_len": 1,
    "max_draft_len": 0,
    "max_inflight_requests": 1,
    "max_queue_requests": 0,
    "vocab_size": 1,
}
DRAFT_VOCABULARY = "draft_vocab_size"
SEED_NAME = "engine_seed_name"
LOG_PROBS = "log_probs"
_FLAGS = ("true", "false")
_NEEDED = (TARGET_NAME, TOKENIZER_DIR, SEED_NAME, LOG_PROBS)
_UNREAD = ("accumulate_tokens",)  # of NVIDIA's BLS
_MAX_DIGITS = 18
_NOT_STARTED = "the orchestrator does not start, or refuses every request"


def check_orchestrators(view: RepositoryView) -> Iterator[CheckFinding]:
    """What trtspec's own models are told."""
    for caller in resolve_roles(view).callers:
        if caller.is_ours:
            yield from _check_limits(caller)
            yield from _check_names(view, caller)


def _check_limits(caller: Caller) -> Iterator[CheckFinding]:
    config = caller.model.config
    values: dict[str, int] = {}
    needed = LIMITS if caller.draft is None else {**LIMITS, "max_draft_len": 1, DRAFT_VOCABULARY: 1}
    for key, least in needed.items():
        text = config.parameters.get(key) if config else None
        number = _read(text or "")
        if number is None or number < least:
            found = "missing" if text is None else repr(text[:60])
            yield _fault(
                caller,
                key,
                f"{caller.model.name}: {key} is {found}, expected a whole number of at least {least}",
                f"Set {key} in the spec and write the repository again with `trtspec deploy`, or correct it here.",
            )
        else:
            values[key] = number
    if {"max_seq_len", "max_draft_len"} <= values.keys() and values["max_seq_len"] - values["max_draft_len"] < 2:
        yield _fault(
            caller,
            "max_seq_len",
            f"{caller.model.name}: max_seq_len is {values['max_seq_len']}, which leaves no room beside max_draft_len "
            f"{values['max_draft_len']}",
            "Set max_seq_len to that of the target's engine.",
        )


def _check_names(view: RepositoryView, caller: Caller) -> Iterator[CheckFinding]:
    model = caller.model
    parameters = model.config.parameters if model.config else {}
    for key in _NEEDED:
        if not parameters.get(key):
            how = "empty" if key in parameters else "missing"
            what = f"{model.name}: {key} is {how}"
            yield _fault(caller, key, what, "Write the repository again with `trtspec deploy`.")
    drafts = parameters.get(ENGINE_DRAFTS)
    if drafts is not None and drafts not in _FLAGS:
        what = f"{model.name}: {ENGINE_DRAFTS} is {drafts[:60]!r}, expected true or false"
        yield _fault(caller, ENGINE_DRAFTS, what, f"Set {ENGINE_DRAFTS} to true for a target with Medusa heads.")
    source, sources = parameters.get(LOG_PROBS), get_args(LogProbSource)
    if source and source not in sources:
        yield _fault(
            caller,
            LOG_PROBS,
            f"{model.name}: {LOG_PROBS} is {source[:60]!r}, expected {', '.join(sources[:-1])} or {sources[-1]}",
            "Write the repository again with `trtspec deploy`.",
        )
    target = view.models.get(caller.target)
    inputs = {tensor.name for tensor in target.config.inputs} if target is not None and target.config else set()
    right = [name for name in SEED_NAMES if name in inputs]
    seed = parameters.get(SEED_NAME)
    if seed and right and seed not in right:
        yield _fault(
            caller,
            SEED_NAME,
            f"{model.name}: {SEED_NAME} is {seed[:60]!r}, {caller.target} calls it {right[0]}",
            f"Set {SEED_NAME} to {right[0]}.",
        )
    template = view.dialect.models.get(find_dialect_name(model) or "")
    known = {*LIMITS, DRAFT_VOCABULARY, *_NEEDED, DRAFT_NAME, ENGINE_DRAFTS, *DRAFTING, *_UNREAD}
    known |= set(template.parameters if template else ())
    unknown = sorted(parameters.keys() - known)
    if unknown:
        yield _fault(
            caller,
            unknown[0],
            f"{model.name}: the orchestrator knows no parameter {listed(unknown)}",
            "Remove it, or spell it as `trtspec deploy` writes it.",
        )


def _read(text: str) -> int | None:
    """A number as Python's int() takes it."""
    try:
        return int(text) if len(text) <= _MAX_DIGITS else None
    except ValueError:
        return None


def _fault(caller: Caller, key: str, what: str, remedy: str) -> CheckFinding:
    return found_parameter(caller.model, key, "orchestrator-parameter", "error", what, _NOT_STARTED, remedy)


RULES = (check_orchestrators,)
