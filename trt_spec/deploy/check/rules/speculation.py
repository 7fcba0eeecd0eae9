"""What speculation from a draft model needs of the target's engine and of both engine models' parameters.

Sources: TensorRT-LLM trtGptModelInflightBatching.cpp (beam width, draft lengths), NVIDIA's BLS loop (decode.py), and
microBatchScheduler.cpp for chunked context.
"""

from __future__ import annotations

from collections.abc import Iterator

from trt_spec.deploy.check.engine_config import whole
from trt_spec.deploy.check.finding import CheckFinding
from trt_spec.deploy.check.rules.reading import DRAFT_TARGET_MODES, MODE, build_config, flag, integer, parameter
from trt_spec.deploy.check.rules.report import found_parameter
from trt_spec.deploy.check.rules.roles import Roles, resolve_roles
from trt_spec.deploy.check.view import RepositoryView
from trt_spec.deploy.parameter_names import BATCHING, ENGINE_PATH, INFLIGHT, STATIC_TYPES

# Limits of our orchestrator and the setting of the target's engine that bounds each.
_BOUNDED = ("max_draft_len", "max_input_len", "max_seq_len")


def check_target_engine(view: RepositoryView) -> Iterator[CheckFinding]:
    """The target's engine must be built to verify drafted tokens (B053)."""
    roles = resolve_roles(view)
    built = build_config(view, roles.target) if roles.target is not None else {}
    if not roles.speculates or roles.target is None or not built:
        return
    target = roles.engines[roles.target]
    remedy = f"Build the target with --speculative_decoding_mode={MODE} and --max_draft_len of 1 or more."
    if built.get("speculative_decoding_mode") not in DRAFT_TARGET_MODES:
        yield found_parameter(
            target,
            ENGINE_PATH,
            "target-mode",
            "error",
            f"{target.name}: its engine says speculative_decoding_mode "
            f"{_shown(built.get('speculative_decoding_mode'))}, expected {MODE} (2)",
            "it refuses every request that brings drafted tokens",
            remedy,
        )
    if (whole(built, "max_draft_len") or 0) < 1:
        yield found_parameter(
            target,
            ENGINE_PATH,
            "target-draft-len",
            "error",
            f"{target.name}: its engine takes max_draft_len {whole(built, 'max_draft_len') or 0} drafted tokens, "
            "expected at least 1",
            "it refuses every request that brings drafted tokens",
            remedy,
        )


def check_orchestrator_limits(view: RepositoryView) -> Iterator[CheckFinding]:
    """What our orchestrator lets through must fit the target's engine (B053)."""
    roles = resolve_roles(view)
    for caller in roles.callers:
        built = build_config(view, caller.target)
        for key in _BOUNDED if caller.is_ours else ():
            allowed, limit = integer(caller.model, key), whole(built, key)
            if allowed is not None and limit is not None and allowed > limit:
                yield found_parameter(
                    caller.model,
                    key,
                    "orchestrator-over-engine",
                    "error",
                    f"{caller.model.name}: {key} is {allowed}, the engine of {caller.target} was built with {limit}",
                    "requests within the orchestrator's limit would be refused by the engine",
                    f"Set {key} to {limit} or less, or build the engine with more and deploy again.",
                )


def check_parameters(view: RepositoryView) -> Iterator[CheckFinding]:
    """Parameters of both engine models that the loop of draft and target depends on."""
    roles = resolve_roles(view)
    yield from _check_batching(roles)
    yield from _check_beams(view, roles)
    for role, model in roles.taking_part():
        if flag(model, "exclude_input_in_output"):
            yield found_parameter(
                model,
                "exclude_input_in_output",
                "excludes-input",
                "error",
                f"{model.name}: exclude_input_in_output is true",
                "the loop continues with the sequence that the engine returns, and would lose the prompt",
                "Set exclude_input_in_output to false.",
                becomes="false",
            )
        if role == "target" and flag(model, "enable_chunked_context"):
            yield found_parameter(
                model,
                "enable_chunked_context",
                "chunked-target",
                "warning",
                f"{model.name}: enable_chunked_context is true on the target of speculation",
                "drafted tokens that do not fit into a chunk are dropped without a word",
                "Set enable_chunked_context to false.",
                becomes="false",
            )


def _check_batching(roles: Roles) -> Iterator[CheckFinding]:
    for _role, model in roles.taking_part():
        strategy = parameter(model, BATCHING)
        if strategy in STATIC_TYPES:
            yield found_parameter(
                model,
                BATCHING,
                "batching-strategy",
                "error",
                f"{model.name}: gpt_model_type (batching_strategy) is {strategy}, expected {INFLIGHT}",
                "speculation from a draft model runs in in-flight batching only",
                f"Set gpt_model_type to {INFLIGHT}.",
                becomes=INFLIGHT,
            )


def _check_beams(view: RepositoryView, roles: Roles) -> Iterator[CheckFinding]:
    speculating = {model.name for _role, model in roles.taking_part()}
    for name, model in roles.engines.items():
        asked, built = integer(model, "max_beam_width"), whole(build_config(view, name), "max_beam_width")
        if asked is None or asked <= 1:
            continue
        if name in speculating:
            yield found_parameter(
                model,
                "max_beam_width",
                "beam-width",
                "error",
                f"{name}: max_beam_width is {asked}, expected 1",
                "speculation from a draft model knows no beams",
                "Set max_beam_width to 1.",
                becomes="1",
            )
        elif built is not None and asked > built:
            yield found_parameter(
                model,
                "max_beam_width",
                "beam-width",
                "error",
                f"{name}: max_beam_width is {asked}, its engine was built for {built}",
                "the engine refuses wider beams",
                f"Set max_beam_width to {built}, or build the engine with --max_beam_width {asked}.",
            )


def _shown(value: object) -> str:
    return "not set" if value is None else repr(value)[:80]


RULES = (check_target_engine, check_orchestrator_limits, check_parameters)
