"""Batch sizes: what config.pbtxt asks for, what the engines were built for, and what goes through an ensemble."""

from __future__ import annotations

from collections.abc import Iterator

from trt_spec.deploy.check.engine_config import whole
from trt_spec.deploy.check.finding import CheckFinding
from trt_spec.deploy.check.kinds import find_kind
from trt_spec.deploy.check.rules.reading import build_config
from trt_spec.deploy.check.rules.report import found
from trt_spec.deploy.check.rules.roles import resolve_roles
from trt_spec.deploy.check.view import ModelView, RepositoryView
from trt_spec.deploy.parameter_names import ENGINE_PATH


def check_engine_batch(view: RepositoryView) -> Iterator[CheckFinding]:
    """max_batch_size of an engine's model against the engine (B082)."""
    for name, model in resolve_roles(view).engines.items():
        built = whole(build_config(view, name), "max_batch_size")
        asked = model.config.max_batch_size if model.config else 0
        if built is not None and built > 0 and asked > built:
            yield found(
                model,
                ("max_batch_size",),
                "batch-over-engine",
                "error",
                f"{name}: max_batch_size is {asked}, its engine was built for {built}",
                "the engine's own limit wins, and an engine whose config.json is edited crashes",
                f"Set max_batch_size: {built}, or build the engine with --max_batch_size {asked}.",
                str(built),
            )
        yield from _check_preferred(name, model, min(asked, built) if built else asked)


def _check_preferred(name: str, model: ModelView, limit: int) -> Iterator[CheckFinding]:
    batching = model.config.dynamic_batching if model.config else None
    if batching is None:
        return
    sizes = batching.preferred_batch_sizes
    wrong = [size for size in sizes if not 1 <= size <= limit]
    if wrong:
        kept = sorted({size for size in sizes if size not in wrong} | {limit})
        yield found(
            model,
            ("dynamic_batching", "preferred_batch_size"),
            "batch-preferred",
            "error",
            f"{name}: preferred_batch_size is {', '.join(map(str, wrong[:8]))}, the largest batch {limit}",
            "Triton loads no model whose preferred batch is less than 1 or larger than its largest",
            f"Set preferred_batch_size: [ {', '.join(map(str, kept[:32]))} ]."
            if limit > 0
            else "Remove dynamic_batching.",
            str(limit) if limit > 0 else None,
        )


def check_pair_batch(view: RepositoryView) -> Iterator[CheckFinding]:
    """The draft must hold every sequence that the target has in flight (B082)."""
    roles = resolve_roles(view)
    if roles.target is None or roles.draft is None:
        return
    target, draft = (whole(build_config(view, name), "max_batch_size") for name in (roles.target, roles.draft))
    if target is not None and draft is not None and draft < target:
        yield found(
            roles.engines[roles.draft],
            ("parameters", ENGINE_PATH),
            "batch-draft-engine",
            "error",
            f"{roles.draft}: its engine was built for {draft} sequences, the target's for {target}",
            "sequences of the target would wait for the draft in every round",
            f"Build the draft's engine with --max_batch_size {target}.",
        )
    theirs, own = (roles.engines[name].config for name in (roles.target, roles.draft))
    if theirs is not None and own is not None and own.max_batch_size < theirs.max_batch_size:
        yield found(
            roles.engines[roles.draft],
            ("max_batch_size",),
            "batch-draft",
            "warning",
            f"{roles.draft}: max_batch_size is {own.max_batch_size}, {roles.target}'s is {theirs.max_batch_size}",
            "draft calls of one round would be split into several batches",
            f"Set max_batch_size: {theirs.max_batch_size} if the draft's engine was built for it.",
        )


def check_ensemble_batch(view: RepositoryView) -> Iterator[CheckFinding]:
    """One batch size through all steps of an ensemble."""
    for name, model in view.models.items():
        if model.config is None or find_kind(model) != "ensemble":
            continue
        asked = model.config.max_batch_size
        for step in dict.fromkeys(step.model_name for step in model.config.steps):
            config = view.models[step].config if step in view.models else None
            if config is None or config.max_batch_size == asked:
                continue
            is_over = asked > config.max_batch_size
            yield found(
                model,
                ("max_batch_size",),
                "batch-ensemble",
                "error" if is_over else "warning",
                f"{name}: max_batch_size is {asked}, its step {step} has {config.max_batch_size}",
                "a batch that the ensemble takes is refused by its step" if is_over else "the step's room is not used",
                f"Give all models of the pipeline one max_batch_size: {min(asked, config.max_batch_size)}.",
            )


RULES = (check_engine_batch, check_pair_batch, check_ensemble_batch)
