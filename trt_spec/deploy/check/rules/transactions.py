"""Decoupled or not: who answers with several responses, and what of NVIDIA's BLS cannot be combined (B009, B083)."""

from __future__ import annotations

from collections.abc import Iterator

from trt_spec.deploy.check.finding import CheckFinding
from trt_spec.deploy.check.rules.report import found
from trt_spec.deploy.check.rules.roles import resolve_roles
from trt_spec.deploy.check.view import ModelView, RepositoryView
from trt_spec.serve.contract import STREAMING_MODEL, UNARY_MODEL

# A client needs both of our models: unary calls are refused by a decoupled one, streams come from no other.
_OURS_DECOUPLED = {UNARY_MODEL: False, STREAMING_MODEL: True}


def check_engines(view: RepositoryView) -> Iterator[CheckFinding]:
    """A loop that awaits one answer a call needs engine models that give one (B083)."""
    roles = resolve_roles(view)
    awaited = {model.name: "speculation" for _role, model in roles.taking_part()}
    for caller in roles.callers:
        if caller.is_ours or (caller.model.config is not None and not caller.model.config.decoupled):
            awaited.setdefault(caller.target, caller.model.name)
    for name, model in roles.engines.items():
        if name in awaited and model.config is not None and model.config.decoupled:
            yield _decoupled(
                model,
                False,
                "engine-decoupled",
                f"{name}: decoupled is true, but {awaited[name]} awaits one answer to every call",
                "Triton refuses such a call to a decoupled model",
            )


def check_callers(view: RepositoryView) -> Iterator[CheckFinding]:
    """NVIDIA's BLS speculates neither streaming nor for several prompts; ours comes in both kinds."""
    for caller in resolve_roles(view).callers:
        model, config = caller.model, caller.model.config
        if config is None:
            continue
        if caller.is_ours:
            wanted = _OURS_DECOUPLED.get(model.name)
            if wanted is not None and config.decoupled != wanted:
                why = "clients that stream" if wanted else "unary clients"
                yield _decoupled(
                    model,
                    wanted,
                    "orchestrator-decoupled",
                    f"{model.name}: decoupled is {str(config.decoupled).lower()}, expected {str(wanted).lower()}",
                    f"this model is the one for {why}",
                )
            continue
        if caller.draft is None:
            continue
        if config.decoupled:
            yield _decoupled(
                model,
                False,
                "bls-streams",
                f"{model.name}: decoupled is true with draft model {caller.draft}",
                "NVIDIA's BLS refuses to stream with speculation, and unary calls to a decoupled model are refused",
            )
        if config.max_batch_size > 1:
            yield found(
                model,
                ("max_batch_size",),
                "bls-batch",
                "note",
                f"{model.name}: max_batch_size is {config.max_batch_size} with draft model {caller.draft}",
                "NVIDIA's BLS refuses a request of more than one prompt when it speculates",
                "Send one prompt a request (text_input of shape [1, 1]) and stream false.",
            )


def _decoupled(model: ModelView, wanted: bool, code: str, what: str, why: str) -> CheckFinding:
    after = str(wanted).lower()
    return found(
        model,
        ("model_transaction_policy", "decoupled"),
        code,
        "error",
        what,
        why,
        f"Set decoupled: {after} in model_transaction_policy (decoupled_mode in the template).",
        after,
    )


RULES = (check_engines, check_callers)
