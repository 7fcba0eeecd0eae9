"""What each build step needs of the host and how long it takes: rough figures from stated assumptions.

Bytes on disk follow from the tensors; host memory and wall time rest on the constants below, which are assumptions but
for the casting rate. Read the times as "minutes or hours", not as a promise.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from trt_spec.plan.engine_memory import Sizing
from trt_spec.plan.facts import ModelFacts
from trt_spec.plan.hardware import GIB
from trt_spec.plan.kv_cache import DTYPE_BYTES
from trt_spec.plan.model_files import ModelFiles
from trt_spec.plan.source_quantization import UNQUANTISED, resolve_source_quantization
from trt_spec.plan.tensors import Split, largest_tensor_bytes, rank_weight_bytes
from trt_spec.plan.trtllm_argv import CALIBRATION_SAMPLES, resolve_dtype
from trt_spec.plan.workspace import HEADS
from trt_spec.spec.model import Role
from trt_spec.spec.reference import judge_reference
from trt_spec.util.safetensors_header import size_bytes

NETWORK_BYTES_PER_S = 100e6  # assumed: a line of 1 Gbit/s
DISK_BYTES_PER_S = 1e9  # assumed: one NVMe drive, reading and writing
CAST_ELEMENTS_PER_S = 297e6  # measured: rowwise FP8 with numpy on two cores
CALIBRATION_TOKENS = 512  # assumed: tokens of each calibration sample
CALIBRATION_EFFICIENCY = 0.2  # assumed: share of one GPU's BF16 peak; layers on other GPUs wait
BUILD_BASE_S = 90.0  # assumed: choosing kernels, for each rank
BUILD_PASSES = 4  # assumed: weights are read, copied into the network, serialised and written

PROCESS_BYTES = GIB // 2  # assumed: a Python process with numpy
BUILDER_BYTES = 4 * GIB  # assumed: TensorRT's builder and its kernel library, for each process (1.6 GiB logged for it)
CONVERTER_COPIES = 3  # assumed: a tensor as stored, in fp32 while it is quantised, and as written
BUILD_COPIES = 2  # assumed: a rank's weights in the network, and the serialised engine


@dataclass(frozen=True)
class StepCost:
    """What a step needs: peak bytes of host memory and of all GPUs together, bytes that it leaves on disk, seconds.

    ``workers`` is how many processes share the host memory.
    """

    id: str
    role: Role
    kind: str
    host_memory_bytes: int
    gpu_memory_bytes: int
    disk_bytes: int
    wall_time_s: float
    assumption: str
    workers: int = 1


def plan_step_costs(sizing: Sizing, files: Mapping[Role, ModelFiles]) -> tuple[StepCost, ...]:
    """The cost of every step of backend engine, the draft's first, as ``plan_engine_steps`` orders them.

    A model of which no files are given counts as unquantised.
    """
    costs: list[StepCost] = []
    fetched: set[tuple[str, str | None]] = set()
    for role, model in reversed(sizing.spec.models().items()):
        source = source_bytes(sizing, role, files.get(role))
        key = (model.model, model.revision)
        if judge_reference(model.model) == "hub" and key not in fetched:
            fetched.add(key)
            costs.append(_fetch(role, source))
        heads = sizing.spec.speculation.heads
        if role == "target" and heads is not None and sizing.medusa and judge_reference(heads) == "hub":
            costs.append(_fetch(role, 2 * sizing.medusa.parameters(sizing.facts[role]), HEADS))
        quantises = calibration_bytes(sizing, role, files.get(role)) > 0
        costs.append(_quantize(sizing, role, source) if quantises else _convert(sizing, role, source))
        costs.append(_build(sizing, role))
    return tuple(costs)


def peak_disk_bytes(costs: Sequence[StepCost], discards_checkpoints: bool = False) -> int:
    """The most that these steps hold on disk at once. Checkpoints that are discarded go when their engine is there."""
    held = peak = 0
    checkpoints: dict[Role, int] = {}
    for cost in costs:
        held += cost.disk_bytes
        peak = max(peak, held)
        if cost.kind in ("convert", "quantize"):
            checkpoints[cost.role] = cost.disk_bytes
        elif cost.kind == "trtllm_build" and discards_checkpoints:
            held -= checkpoints.pop(cost.role, 0)
    return peak


def source_bytes(sizing: Sizing, role: Role, files: ModelFiles | None) -> int:
    """Bytes of the checkpoint as downloaded: from its headers if they were read, else from the shapes."""
    facts = sizing.facts[role]
    if files is not None and files.tensors:
        return sum(size_bytes(tensor.dtype, tensor.shape) for tensor in files.tensors.values())
    element = DTYPE_BYTES.get(facts.dtype, 2)
    if files is None or resolve_source_quantization(files) == UNQUANTISED:
        return facts.parameters * element
    return facts.parameters + _embedding_parameters(facts) * (element - 1)


def calibration_bytes(sizing: Sizing, role: Role, files: ModelFiles | None) -> int:
    """GPU bytes that post-training quantisation of this model takes, 0 if its weights need none.

    ModelOpt loads the whole unquantised model over all visible GPUs, however the engine is split afterwards.
    """
    model, facts = sizing.spec.models()[role], sizing.facts[role]
    stored = UNQUANTISED if files is None else resolve_source_quantization(files)
    if model.quantization != "fp8" or stored != UNQUANTISED:
        return 0
    return facts.parameters * DTYPE_BYTES[resolve_dtype(model, facts)]


def _embedding_parameters(facts: ModelFacts) -> int:
    return facts.vocab_size * facts.hidden_size * (1 if facts.tied_embeddings else 2)


def _checkpoint_bytes(sizing: Sizing, role: Role) -> tuple[int, ...]:
    model, facts = sizing.spec.models()[role], sizing.facts[role]
    return rank_weight_bytes(
        facts,
        model.quantization,
        resolve_dtype(model, facts),
        model.tensor_parallel,
        model.pipeline_parallel,
        sizing.dialect,
        model.kv_cache_dtype,
        sizing.heads_of(role),
    )


def _fetch(role: Role, source: int, name: str = "") -> StepCost:
    return StepCost(
        id=f"fetch-{name or role}",
        role=role,
        kind="fetch",
        host_memory_bytes=PROCESS_BYTES,
        gpu_memory_bytes=0,
        disk_bytes=source,
        wall_time_s=source / NETWORK_BYTES_PER_S,
        assumption="100 MB/s from the hub",
    )


def _convert(sizing: Sizing, role: Role, source: int) -> StepCost:
    model, facts = sizing.spec.models()[role], sizing.facts[role]
    written = sum(_checkpoint_bytes(sizing, role))
    casts = facts.parameters / CAST_ELEMENTS_PER_S if model.quantization == "fp8_rowwise" else 0.0
    # One rank's worth of a split tensor is cut from the whole one, so the unsplit tensor counts.
    whole = Split(facts, "none", "auto", resolve_dtype(model, facts), 1, 1, sizing.dialect)
    return StepCost(
        id=f"convert-{role}",
        role=role,
        kind="convert",
        host_memory_bytes=PROCESS_BYTES + CONVERTER_COPIES * largest_tensor_bytes(whole),
        gpu_memory_bytes=0,
        disk_bytes=written,
        wall_time_s=(source + written) / DISK_BYTES_PER_S + casts,
        assumption="tensor by tensor, on a disk of 1 GB/s",
    )


def _quantize(sizing: Sizing, role: Role, source: int) -> StepCost:
    facts = sizing.facts[role]
    written, gpu_bytes = sum(_checkpoint_bytes(sizing, role)), calibration_bytes(sizing, role, None)
    flops = 2 * facts.parameters * CALIBRATION_SAMPLES * CALIBRATION_TOKENS
    return StepCost(
        id=f"quantize-{role}",
        role=role,
        kind="quantize",
        host_memory_bytes=PROCESS_BYTES + gpu_bytes,
        gpu_memory_bytes=gpu_bytes,
        disk_bytes=written,
        wall_time_s=(source + written) / DISK_BYTES_PER_S + flops / (sizing.gpu.bf16_flops * CALIBRATION_EFFICIENCY),
        assumption=f"the whole model passes through host memory; {CALIBRATION_SAMPLES} samples of "
        f"{CALIBRATION_TOKENS} tokens",
    )


def _workers(sizing: Sizing, role: Role, ranks: int) -> int:
    """Builder processes at a time: those of ``build_flags``, else one a rank on a GPU of its own (trtllm_argv)."""
    asked = sizing.spec.build_flags.get(role, {}).get("workers")
    gpus = sizing.spec.hardware.gpus if sizing.spec.hardware else 1
    return max(1, min(ranks, asked if isinstance(asked, int) else gpus))


def _build(sizing: Sizing, role: Role) -> StepCost:
    ranks = _checkpoint_bytes(sizing, role)
    workers = _workers(sizing, role, len(ranks))
    rounds = -(-len(ranks) // workers)
    return StepCost(
        id=f"engine-{role}",
        role=role,
        kind="trtllm_build",
        host_memory_bytes=workers * (BUILDER_BYTES + BUILD_COPIES * max(ranks)),
        gpu_memory_bytes=workers * max(ranks),
        disk_bytes=sum(ranks),
        wall_time_s=rounds * BUILD_BASE_S + BUILD_PASSES * sum(ranks) / DISK_BYTES_PER_S,
        assumption=f"{workers} ranks at a time, each with its weights twice in host memory",
        workers=workers,
    )
