"""Time of one step of one engine, from what it must read, compute and exchange (a roofline, Williams et al., 2009).

    step = max(bytes / bandwidth, flops / peak) / efficiency + communication + launch         seconds

    bytes  on each GPU: every weight once, and the KV cache of every sequence
    flops  on each GPU: 2 for each weight and token, and 4 * heads * head_dim for each layer, token and attended token
    communication  two all-reduces a layer of batch * tokens * hidden_size activations (ring), if split over GPUs

Pipeline stages work one after another in a step, so splitting by layers saves no time, only memory. Embedding look-up,
activations, cache writes and the gathering of logits are left out: small beside the weights while memory is the bound.
"""

from __future__ import annotations

from dataclasses import dataclass

from trt_spec.plan.facts import ModelFacts
from trt_spec.plan.hardware import Gpu
from trt_spec.spec.model import KvCacheDtype, Model, Quantization

# Scales are left out (below 1 % in FP8). The head stays unquantised, as TensorRT-LLM and ModelOpt leave it.
QUANTISED_BYTES: dict[Quantization, float] = {"fp8": 1.0, "fp8_rowwise": 1.0, "int8": 1.0, "int4": 0.5}
FP8_COMPUTE: tuple[Quantization, ...] = ("fp8", "fp8_rowwise")
ALL_REDUCES_PER_LAYER = 2  # after attention and after the MLP (Megatron-LM, arXiv 1909.08053)


@dataclass(frozen=True)
class Constants:
    """What a step costs beyond the data sheet; one set for all models and GPUs.

    Fitted to NVIDIA's two published H200 baselines (docs/explanation/speed-model.md), not measured here.
    """

    efficiency: float = 0.8  # share of bandwidth and peak reached; H200: copies about 0.9, large products about 0.8
    launch_s: float = 1.2e-3  # scheduling, sampling and kernel launches of a step
    all_reduce_s: float = 9e-6  # latency of one all-reduce of a small message inside a node
    link_fraction: float = 0.8  # share of the link's bandwidth that a ring reaches
    round_overhead_s: float = 1e-3  # two Triton requests and the orchestrator's own work in a round


CONSTANTS = Constants()


@dataclass(frozen=True)
class ServedModel:
    """A model as its engine runs it: shapes, precision and split over GPUs."""

    facts: ModelFacts
    quantization: Quantization = "none"
    kv_cache_dtype: KvCacheDtype = "auto"
    dtype: str = "auto"
    tensor_parallel: int = 1
    pipeline_parallel: int = 1

    @property
    def dtype_bytes(self) -> float:
        """Bytes of an unquantised element; a checkpoint of any dtype but float32 is served in 16 bits."""
        return 4.0 if (self.facts.dtype if self.dtype == "auto" else self.dtype) == "float32" else 2.0

    @property
    def kv_bytes_per_token(self) -> float:
        """Bytes that one cached token takes on each of the tensor-parallel ranks, all layers together.

        2 * layers * kv_heads * head_dim * element; a rank holds at least one key/value head, copied if need be.
        """
        element = 1.0 if self.kv_cache_dtype == "fp8" else self.dtype_bytes
        kv_heads = max(1.0, self.facts.kv_heads / self.tensor_parallel)
        return 2.0 * self.facts.layers * kv_heads * self.facts.head_dim * element


def served_model(model: Model, facts: ModelFacts) -> ServedModel:
    """The engine that a spec's ``model`` section asks for."""
    return ServedModel(
        facts, model.quantization, model.kv_cache_dtype, model.dtype, model.tensor_parallel, model.pipeline_parallel
    )


@dataclass(frozen=True)
class StepCost:
    """What one step costs each GPU: bytes read, floating-point operations, and seconds of each part."""

    bytes_read: float
    flops: float
    memory_s: float
    compute_s: float
    communication_s: float
    launch_s: float

    @property
    def total_s(self) -> float:
        """Seconds of the step; memory and compute overlap, the rest does not."""
        return max(self.memory_s, self.compute_s) + self.communication_s + self.launch_s


def step_time_s(
    model: ServedModel,
    gpu: Gpu,
    batch: int,
    tokens: int,
    context_tokens: int,
    constants: Constants = CONSTANTS,
) -> float:
    """Seconds of one step: ``batch`` sequences of ``tokens`` new tokens each, ``context_tokens`` cached for each."""
    return step_cost(model, gpu, batch, tokens, context_tokens, constants).total_s


def step_cost(
    model: ServedModel,
    gpu: Gpu,
    batch: int,
    tokens: int,
    context_tokens: int,
    constants: Constants = CONSTANTS,
) -> StepCost:
    """The parts of ``step_time_s`` (module docstring)."""
    facts, ranks, new = model.facts, model.tensor_parallel, batch * tokens
    layers, head = _weights_per_rank(model)
    layer_bytes = QUANTISED_BYTES.get(model.quantization, model.dtype_bytes)
    bytes_read = layers * layer_bytes + head * model.dtype_bytes + batch * context_tokens * model.kv_bytes_per_token

    layer_flops, head_flops = 2.0 * layers * new, 2.0 * head * new
    attended = context_tokens + tokens / 2  # a new token attends to the cache and, on average, half of the new ones
    attention_flops = 4.0 * facts.layers * facts.heads * facts.head_dim * attended * new / ranks
    # A GPU without FP8 units computes at its BF16 rate.
    fast = model.quantization in FP8_COMPUTE and gpu.fp8_flops > 0
    compute_s = layer_flops / (gpu.fp8_flops if fast else gpu.bf16_flops)
    compute_s += (head_flops + attention_flops) / gpu.bf16_flops

    return StepCost(
        bytes_read=bytes_read,
        flops=layer_flops + head_flops + attention_flops,
        memory_s=bytes_read / gpu.bandwidth_bytes_per_s / constants.efficiency,
        compute_s=compute_s / constants.efficiency,
        communication_s=_communication_s(model, gpu, new * facts.hidden_size * model.dtype_bytes, constants),
        launch_s=constants.launch_s,
    )


def _weights_per_rank(model: ServedModel) -> tuple[float, float]:
    """Weights that a step reads on a tensor-parallel rank: those of all layers, those of the output head.

    The embedding table is not among them: a step looks up rows of it. Biases and norms are left out (below 0.1 %).
    """
    facts, ranks = model.facts, model.tensor_parallel
    queries = facts.heads * facts.head_dim / ranks
    keys_values = 2.0 * max(1.0, facts.kv_heads / ranks) * facts.head_dim
    attention = facts.hidden_size * (2.0 * queries + keys_values)
    mlp = 3.0 * facts.hidden_size * facts.intermediate_size / ranks
    return facts.layers * (attention + mlp), facts.vocab_size * facts.hidden_size / ranks


def _communication_s(model: ServedModel, gpu: Gpu, message_bytes: float, constants: Constants) -> float:
    """Seconds in all-reduces, and in handing activations of ``message_bytes`` from stage to stage."""
    ranks, link = model.tensor_parallel, gpu.link_bytes_per_s * constants.link_fraction
    hand_over_s = constants.all_reduce_s + message_bytes / link
    stages_s = (model.pipeline_parallel - 1) * hand_over_s
    if ranks == 1:
        return stages_s
    # A ring sends each GPU's share twice past every other GPU: Patarasuk and Yuan, 2009.
    all_reduce_s = constants.all_reduce_s + 2.0 * (ranks - 1) / ranks * message_bytes / link
    return ALL_REDUCES_PER_LAYER * model.facts.layers * all_reduce_s + stages_s
