"""A target with Medusa heads: the mode and tree of its model against what its engine was built for.

Sources: TensorRT-LLM trtGptModelInflightBatching.cpp (the engine decides the mode, with a line in the log),
gptJsonConfig.cpp (heads and draft length are read of pretrained_config), speculativeChoicesUtils.cpp (the tree), and
the backend's model_instance_state.cc and utils.cc (csvStrToVecVecInt; what does not parse is the default tree).
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from trt_spec.deploy.check.engine_config import whole
from trt_spec.deploy.check.finding import CheckFinding, CheckSeverity
from trt_spec.deploy.check.rules.reading import build_config, parameter, pretrained_config
from trt_spec.deploy.check.rules.report import found_parameter
from trt_spec.deploy.check.rules.roles import resolve_roles
from trt_spec.deploy.check.view import ModelView, RepositoryView
from trt_spec.deploy.parameter_names import DECODING_MODE, MEDUSA, MEDUSA_CHOICES
from trt_spec.plan.steps import SPECULATIVE_DECODING_MODE
from trt_spec.serve.contract import ENGINE_DRAFTS
from trt_spec.spec.medusa import MC_SIM_7B_63, Choices, depth_of, judge_choices

ENGINE_MODES = (SPECULATIVE_DECODING_MODE[MEDUSA], MEDUSA, MEDUSA.upper())
"""How a config.json spells the mode of an engine with Medusa heads."""

_PATH = r"\{\s*\d{1,4}(?:\s*,\s*\d{1,4})*\s*,?\s*\}"
_TREE = re.compile(rf"\s*{_PATH}(?:\s*,\s*{_PATH})*\s*,?\s*")
_MAX_CHARACTERS = 100_000  # a tree of 64 nodes has a thousand


def check_medusa(view: RepositoryView) -> Iterator[CheckFinding]:
    """Every engine model that is meant for Medusa, or whose engine is."""
    for name, model in resolve_roles(view).engines.items():
        built = build_config(view, name)
        is_built = built.get("speculative_decoding_mode") in ENGINE_MODES
        is_meant = parameter(model, DECODING_MODE) == MEDUSA
        if is_meant and built and not is_built:
            yield _fault(
                model,
                DECODING_MODE,
                "medusa-engine",
                f"{name}: decoding_mode is medusa, its engine has no Medusa heads",
                "TensorRT-LLM changes the mode with a line in the log, and nothing is ever drafted",
                "Build the engine with --speculative_decoding_mode=medusa, or leave decoding_mode empty.",
            )
        if is_built and not is_meant:
            yield _fault(
                model,
                DECODING_MODE,
                "medusa-mode",
                f"{name}: its engine has Medusa heads, decoding_mode is {parameter(model, DECODING_MODE) or 'empty'}",
                "TensorRT-LLM changes the mode with a line in the log",
                "Set decoding_mode to medusa.",
                "warning",
            )
        if is_meant or is_built:
            yield from _check_tree(view, name, model)


def check_counts(view: RepositoryView) -> Iterator[CheckFinding]:
    """What our orchestrator says of drafts must be what its target does."""
    roles = resolve_roles(view)
    for caller in roles.callers:
        target = roles.engines.get(caller.target)
        if not caller.is_ours or target is None:
            continue
        drafts_inside = parameter(target, DECODING_MODE) == MEDUSA
        if drafts_inside != (parameter(caller.model, ENGINE_DRAFTS) == "true"):
            is_ = "drafts" if drafts_inside else "does not draft"
            yield _fault(
                caller.model,
                ENGINE_DRAFTS,
                "engine-drafts",
                f"{caller.model.name}: {ENGINE_DRAFTS} is {parameter(caller.model, ENGINE_DRAFTS) or 'not set'}, "
                f"{caller.target} {is_} with heads of its own",
                "answers would count no drafts where there are some, or leave the counts out where it knows them",
                "Write the repository again with `trtspec deploy`.",
                "warning",
            )


def _check_tree(view: RepositoryView, name: str, model: ModelView) -> Iterator[CheckFinding]:
    value = parameter(model, MEDUSA_CHOICES)
    choices = MC_SIM_7B_63 if value is None else read_choices(value)
    if choices is None:
        yield _fault(
            model,
            MEDUSA_CHOICES,
            "medusa-choices",
            f"{name}: medusa_choices is {(value or '')[:60]!r}, expected a tree such as {{0}}, {{0, 0}}, {{1}}",
            "what cannot be read counts as not set: the default tree of 63 nodes is taken, whatever the engine holds",
            "Write every node in braces, separated by commas.",
        )
        return
    fault = judge_choices(choices)
    if fault is not None:
        yield _fault(
            model,
            MEDUSA_CHOICES,
            "medusa-choices",
            f"{name}: medusa_choices: {fault}",
            "a node without its parent is taken for one below the root, and other faults keep the model from loading",
            "Write a tree: every beginning of a path is a node of its own.",
        )
        return
    words = "the default tree (medusa_choices is empty)" if value is None else "medusa_choices"
    engine = pretrained_config(view, name)
    limits = (("num_medusa_heads", depth_of(choices), "guesses deep"), ("max_draft_len", len(choices), "nodes"))
    for key, asked, unit in limits:
        limit = whole(engine, key)
        if limit is not None and asked > limit:
            yield _fault(
                model,
                MEDUSA_CHOICES,
                "medusa-choices",
                f"{name}: {words} is {asked} {unit}, its engine has {key} {limit}",
                "the model does not load",
                f"Write a tree of at most {limit} {unit}, or build the engine for more.",
            )


def read_choices(text: str) -> Choices | None:
    """The tree of a parameter, None if the backend could not read it so."""
    if len(text) > _MAX_CHARACTERS or _TREE.fullmatch(text) is None:
        return None
    return tuple(tuple(map(int, re.findall(r"\d+", path))) for path in re.findall(_PATH, text))


def _fault(
    model: ModelView, key: str, code: str, what: str, why: str, remedy: str, severity: CheckSeverity = "error"
) -> CheckFinding:
    return found_parameter(model, key, code, severity, what, why, remedy)


RULES = (check_medusa, check_counts)
