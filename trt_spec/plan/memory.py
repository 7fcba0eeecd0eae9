"""Does the pair fit: bytes on every GPU, tokens of KV cache, and what each build step needs of the host."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from trt_spec.plan.activations import logits_bytes
from trt_spec.plan.build_cost import StepCost, calibration_bytes, plan_step_costs
from trt_spec.plan.engine_memory import GpuMemory, KvPool, Measured, Sizing, measure_memory
from trt_spec.plan.finding import Finding
from trt_spec.plan.hardware import GIB
from trt_spec.plan.limits import gathers_logits
from trt_spec.plan.memory_changes import suggest_changes
from trt_spec.plan.model_files import ModelFiles
from trt_spec.plan.shapes import padded_vocab_size
from trt_spec.spec.model import Role

CALIBRATION_SHARE = 0.9  # of all GPUs' memory that an unquantised model may fill while it is calibrated


@dataclass(frozen=True)
class MemoryPlan:
    """Memory of a pair. ``fits``: every KV pool holds at least one sequence of full length.

    ``pools`` are the ``max_tokens_in_paged_kv_cache`` of both engines. ``peak_disk_bytes`` is what all steps leave.
    """

    gpus: tuple[GpuMemory, ...]
    pools: Mapping[Role, KvPool]
    steps: tuple[StepCost, ...]
    peak_disk_bytes: int
    fits: bool
    findings: tuple[Finding, ...]


def plan_memory(sizing: Sizing, files: Mapping[Role, ModelFiles] | None = None) -> MemoryPlan:
    """Memory of a pair on backend engine, with the smallest changes that would make it fit if it does not. Pure.

    ``files`` tell whether weights are quantised already; without them they count as unquantised. Units are bytes and
    tokens; docs/explanation/memory-and-placement.md has every formula.
    """
    measured = measure_memory(sizing)
    steps = plan_step_costs(sizing, files or {})
    return MemoryPlan(
        gpus=measured.gpus,
        pools={pool.role: pool for pool in measured.pools},
        steps=steps,
        peak_disk_bytes=sum(step.disk_bytes for step in steps),
        fits=measured.fits,
        findings=(
            *_check_fit(sizing, measured),
            *_check_batch(sizing, measured),
            *_check_logits(sizing),
            *_check_calibration(sizing, files or {}),
        ),
    )


def _check_fit(sizing: Sizing, measured: Measured) -> Iterator[Finding]:
    if measured.fits:
        return
    tightest = min(measured.gpus, key=lambda gpu: gpu.kv_budget_bytes)
    short = next(pool for pool in measured.pools if pool.max_tokens < pool.sequence_tokens)
    changes = suggest_changes(sizing)
    remedy = f"Smallest changes that fit: {'; or '.join(changes)}." if changes else "No small change would make it fit."
    yield Finding(
        "memory-does-not-fit",
        "refuse",
        f"GPU {tightest.index} of {tightest.total_bytes / GIB:.1f} GiB: {_describe(tightest)}; that leaves a KV cache "
        f"of {short.max_tokens} tokens for the {short.role}, expected at least {short.sequence_tokens} (one sequence).",
        remedy,
    )


def _describe(gpu: GpuMemory) -> str:
    parts = [
        f"{engine.role} weights {engine.weights_bytes / GIB:.1f} GiB and buffers "
        f"{(engine.fixed_bytes - engine.weights_bytes) / GIB:.1f} GiB"
        for engine in gpu.engines
    ]
    return ", ".join(parts)


def _check_batch(sizing: Sizing, measured: Measured) -> Iterator[Finding]:
    batch = sizing.spec.limits.max_batch_size
    tight = [pool for pool in measured.pools if 0 < pool.full_sequences < batch]
    if not measured.fits or not tight:
        return
    pool = min(tight, key=lambda pool: pool.full_sequences)
    yield Finding(
        "memory-small-batch",
        "warn",
        f"{pool.role}: the KV cache of {pool.max_tokens} tokens holds {pool.full_sequences} of {batch} sequences of "
        f"{pool.sequence_tokens} tokens; {-pool.leftover_tokens} tokens are missing for a full batch.",
        "Longer sequences wait for each other; lower limits.max_batch_size or the lengths, or add GPUs.",
        pool.role,
    )


def _check_logits(sizing: Sizing) -> Iterator[Finding]:
    if not gathers_logits(sizing.spec):
        return
    limits, tp = sizing.limits["target"], sizing.spec.target.tensor_parallel
    vocab = padded_vocab_size(sizing.facts["target"].vocab_size, tp)
    step = logits_bytes(limits.max_batch_size, limits.max_draft_len, vocab)
    yield Finding(
        "memory-logits",
        "warn",
        f"target: acceptance by logits needs {step / 1e6:.1f} MB of logits a step ({limits.max_batch_size} sequences x "
        f"{limits.max_draft_len + 1} positions x {vocab} x 4 bytes), and keeps the draft's beside them.",
        "speculation.accept tokens needs no gathered logits.",
        "target",
    )


def _check_calibration(sizing: Sizing, files: Mapping[Role, ModelFiles]) -> Iterator[Finding]:
    hardware = sizing.spec.hardware
    if hardware is None:
        return
    available = hardware.gpus * sizing.gpu.memory_bytes
    for role in sizing.spec.models():
        needed = calibration_bytes(sizing, role, files.get(role))
        if needed > CALIBRATION_SHARE * available:
            yield Finding(
                "memory-calibration",
                "refuse",
                f"{role}: calibration needs ~{needed / 1e9:.0f} GB across visible GPUs for the unquantised weights, "
                f"{hardware.gpus} x {sizing.gpu.memory_bytes / GIB:.0f} GiB are there.",
                f"Name a checkpoint of {role} that ModelOpt has quantised to FP8, quantise it on a larger machine, or "
                "set quantization to fp8_rowwise with kv_cache_dtype auto, which needs no calibration.",
                role,
            )
