"""The smallest changes of a spec that would make it fit, found by measuring changed copies of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from trt_spec.plan.engine_memory import Sizing, measure_memory
from trt_spec.plan.limits import EngineLimits
from trt_spec.plan.placement import plan_placement
from trt_spec.plan.shapes import valid_tensor_parallel
from trt_spec.spec.model import Role, Spec

MIN_USEFUL_TOKENS = 256  # shorter sequences are no remedy


def suggest_changes(sizing: Sizing) -> tuple[str, ...]:
    """Changes each of which alone makes the pair fit, the smallest first; empty if none is found."""
    searches = (_fewer_sequences, _shorter_sequences, _draft_elsewhere, _fp8, _more_gpus)
    return tuple(change for search in searches for change in search(sizing))


def _fewer_sequences(sizing: Sizing) -> Iterator[str]:
    batch = largest_that_fits(
        sizing.spec.limits.max_batch_size - 1, lambda n: measure_memory(_with_batch(sizing, n)).fits
    )
    if batch:
        yield f"set limits.max_batch_size to {batch}"


def _shorter_sequences(sizing: Sizing) -> Iterator[str]:
    single = _with_batch(sizing, 1)
    if measure_memory(single).fits:
        return
    asked = sizing.spec.limits.max_input_len + sizing.spec.limits.max_output_len
    length = largest_that_fits(asked - 1, lambda n: measure_memory(_with_length(single, n)).fits)
    if length >= MIN_USEFUL_TOKENS:
        yield f"set limits.max_batch_size to 1 and limits.max_input_len + limits.max_output_len to {length} at most"


def _draft_elsewhere(sizing: Sizing) -> Iterator[str]:
    spec = sizing.spec
    if spec.draft is None or spec.hardware is None:
        return
    placement, _ = plan_placement(spec)
    taken = set(placement.roles["target"].gpus)
    idle = [gpu for gpu in range(spec.hardware.gpus * spec.hardware.nodes) if gpu not in taken]
    ranks = len(placement.roles["draft"].gpus)
    if not placement.shared_gpus or len(idle) < ranks:
        return
    gpus = tuple(idle[:ranks])
    if measure_memory(replace(sizing, spec=_with_model(spec, "draft", gpus=gpus))).fits:
        yield f"set draft.gpus to {list(gpus)}"


def _fp8(sizing: Sizing) -> Iterator[str]:
    plain: list[Role] = [role for role, model in sizing.spec.models().items() if model.quantization == "none"]
    if sizing.spec.backend != "engine" or not sizing.gpu.has_fp8:
        return
    for roles in (*((role,) for role in plain), plain if len(plain) > 1 else ()):
        spec = sizing.spec
        for role in roles:
            spec = _with_model(spec, role, quantization="fp8", kv_cache_dtype="fp8")
        if roles and measure_memory(replace(sizing, spec=spec)).fits:
            yield f"set quantization and kv_cache_dtype to fp8 for {' and '.join(roles)}"
            return


def _more_gpus(sizing: Sizing) -> Iterator[str]:
    spec, facts = sizing.spec, sizing.facts["target"]
    sizes = [
        size
        for size in valid_tensor_parallel(facts)
        # NVIDIA's converter fails on FP8 with repeated KV heads.
        if size > spec.target.tensor_parallel and (spec.target.quantization != "fp8" or size <= facts.kv_heads)
    ]
    for size in sizes:
        gpus = size * spec.target.pipeline_parallel
        if measure_memory(replace(sizing, spec=_over_gpus(spec, size, gpus))).fits:
            yield f"use {gpus} GPUs (target.tensor_parallel {size}; valid larger sizes: {', '.join(map(str, sizes))})"
            return


def largest_that_fits(limit: int, fits: Callable[[int], bool]) -> int:
    """The largest n of 1..limit that fits, 0 if none does; what fits at n fits below it."""
    low, high = 0, limit
    while low < high:
        middle = (low + high + 1) // 2
        if fits(middle):
            low = middle
        else:
            high = middle - 1
    return low


def _with_batch(sizing: Sizing, batch: int) -> Sizing:
    return _with_limits(sizing, max_batch_size=batch, length=None)


def _with_length(sizing: Sizing, length: int) -> Sizing:
    """``length`` tokens of prompt and answer; measuring does not look at how they divide."""
    return _with_limits(sizing, max_batch_size=sizing.spec.limits.max_batch_size, length=length)


def _with_limits(sizing: Sizing, max_batch_size: int, length: int | None) -> Sizing:
    asked = sizing.spec.limits.max_input_len + sizing.spec.limits.max_output_len
    new = asked if length is None else length
    spec_limits = sizing.spec.limits.model_copy(
        update={"max_batch_size": max_batch_size, "max_input_len": max(1, new - 1), "max_output_len": 1}
        if length is not None
        else {"max_batch_size": max_batch_size}
    )

    def shrink(limits: EngineLimits) -> EngineLimits:
        needed = max_batch_size * (new + limits.max_draft_len + 1)
        return replace(
            limits,
            max_batch_size=max_batch_size,
            max_num_tokens=min(limits.max_num_tokens, needed),
            engine_max_seq_len=min(limits.engine_max_seq_len, new + 2 * limits.max_draft_len),
        )

    return replace(
        sizing,
        spec=sizing.spec.model_copy(update={"limits": spec_limits}),
        limits={role: shrink(limits) for role, limits in sizing.limits.items()},
    )


def _with_model(spec: Spec, role: Role, **changes: Any) -> Spec:
    return spec.model_copy(update={role: spec.models()[role].model_copy(update=changes)})


def _over_gpus(spec: Spec, tensor_parallel: int, gpus: int) -> Spec:
    """The target over more GPUs of one node; the draft stays where it is."""
    hardware = spec.hardware
    if hardware is None:
        return spec
    wider = hardware.model_copy(update={"gpus": max(gpus, hardware.gpus)})
    changed = _with_model(spec, "target", tensor_parallel=tensor_parallel, gpus=None)
    return changed.model_copy(update={"hardware": wider})
