"""The limits of both engines together: each derived from the spec, then balanced against the memory they share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from trt_spec.plan.engine_memory import Sizing, measure_memory
from trt_spec.plan.facts import ModelFacts
from trt_spec.plan.finding import Finding
from trt_spec.plan.hardware import load_gpu
from trt_spec.plan.limits import judge_limits, resolve_limits, with_sequences_per_step
from trt_spec.plan.medusa_heads import MedusaHeads
from trt_spec.plan.memory_changes import largest_that_fits
from trt_spec.plan.model_files import ModelFiles
from trt_spec.plan.precision import check_precision
from trt_spec.plan.toolchain import Profile
from trt_spec.spec.model import Role, Spec


def plan_sizing(
    spec: Spec,
    facts: Mapping[Role, ModelFacts],
    profile: Profile,
    files: Mapping[Role, ModelFiles] | None = None,
    medusa: MedusaHeads | None = None,
) -> tuple[Sizing, tuple[Finding, ...]]:
    """Limits of every engine of a spec for backend engine, and what stands against them and their precision. Pure.

    ``files`` tell what is quantised already, ``medusa`` which heads the target has. Raises SpecError for a spec without
    hardware.
    """
    gpu = load_gpu(spec.hardware.gpu if spec.hardware else "none")
    known = files or {}
    derived = {role: resolve_limits(spec, role, facts[role], profile, known.get(role))[0] for role in spec.models()}
    sizing = balance_limits(Sizing(spec, facts, derived, gpu, profile.dialect, medusa))
    findings = [
        finding
        for role in spec.models()
        for finding in (
            *check_precision(spec, role, facts[role], gpu, known.get(role)),
            *judge_limits(sizing.limits[role], spec, facts[role]),
        )
    ]
    return sizing, tuple(findings)


def balance_limits(sizing: Sizing) -> Sizing:
    """The same engines with max_num_tokens for no more sequences a step than their KV caches hold, but for one.

    Activations and KV cache share a GPU, and a step can only verify sequences that are cached: so the derived budget
    gives way until the cache holds as many.
    """

    def holds(sequences: int) -> bool:
        pools = measure_memory(_with_sequences(sizing, sequences)).pools
        return all(pool.full_sequences >= sequences for pool in pools)

    return _with_sequences(sizing, max(1, largest_that_fits(sizing.spec.limits.max_batch_size, holds)))


def _with_sequences(sizing: Sizing, sequences: int) -> Sizing:
    limits = {role: with_sequences_per_step(engine, sizing.spec, sequences) for role, engine in sizing.limits.items()}
    return replace(sizing, limits=limits)
