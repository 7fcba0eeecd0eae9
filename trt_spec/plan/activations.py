"""GPU memory of an engine beside weights and KV cache: activations, logits, decoder, and what every process takes.

TensorRT fixes the activation memory of an engine at build time from its largest shapes, and reuses it between layers
(TensorRT-LLM, reference/memory). The formula is a reading of three published logs, with one GPU per engine:

    per token   element * (2 * intermediate / tp + 2 * hidden)                       gate and up, residual and its norm
    in FP8      + (2 * intermediate / tp + hidden) * 1 byte                          their quantised copies
    per row     element * padded vocabulary                                          the head, before the cast to fp32

    Qwen2.5-1.5B shape, fp16 with int4 weights, 8192 tokens, 2048 rows (0.17.0.post1)    921.5 MiB, logged  921.51
    Qwen2.5-7B shape,   fp16 with int4 weights, 8192 tokens, 2048 rows (0.17.0.post1)   1298.0 MiB, logged 1298.01
    Llama-2-7B, FP8, 8192 tokens, 4096 rows (0.12 development)                           926.0 MiB, logged  928.77

Division by tp is derived, not measured.
"""

from __future__ import annotations

from trt_spec.plan.facts import ModelFacts
from trt_spec.plan.hardware import GIB
from trt_spec.plan.kv_cache import DTYPE_BYTES
from trt_spec.plan.shapes import kv_heads_per_rank
from trt_spec.spec.model import Quantization

LOGITS_BYTES = 4  # fp32
DECODER_BYTES_PER_LOGIT = (
    34  # sampling workspace for each sequence and vocabulary entry: 4.35 GB / 4096 / 32000, logged
)
RUNTIME_RESERVE_BYTES = GIB
"""CUDA context, libraries and small buffers of one engine process on one GPU: 0.8 GiB by the log in NVIDIA's memory
reference (total less available, less weights, activations, buffers and decoder), rounded up."""

MAX_TENSOR_ELEMENTS = 2**31 - 1  # TensorRT's tensor volume; trtllm-build warns of it for large max_num_tokens


def activation_bytes_per_token(facts: ModelFacts, quantization: Quantization, dtype: str, tensor_parallel: int) -> int:
    """Bytes of activations for each token of max_num_tokens on one rank."""
    columns = 2 * -(-facts.intermediate_size // tensor_parallel)
    mlp = DTYPE_BYTES[dtype] * (columns + 2 * facts.hidden_size)
    attention = DTYPE_BYTES[dtype] * (_attention_columns(facts, tensor_parallel) + 2 * facts.hidden_size)
    quantised = 0 if quantization == "none" else columns + facts.hidden_size
    return max(mlp, attention) + quantised


def activation_bytes(
    facts: ModelFacts,
    quantization: Quantization,
    dtype: str,
    tensor_parallel: int,
    max_num_tokens: int,
    logits_rows: int,
    padded_vocab_size: int,
) -> int:
    """Bytes of an engine's activations on one rank; ``logits_rows`` is batch * (max_draft_len + 1)."""
    per_token = activation_bytes_per_token(facts, quantization, dtype, tensor_parallel)
    return max_num_tokens * per_token + logits_rows * padded_vocab_size * DTYPE_BYTES[dtype]


def logits_bytes(max_batch_size: int, max_draft_len: int, padded_vocab_size: int) -> int:
    """Bytes of the fp32 logits of one step: batch * (max_draft_len + 1) * padded vocabulary * 4."""
    return max_batch_size * (max_draft_len + 1) * padded_vocab_size * LOGITS_BYTES


def decoder_bytes(max_batch_size: int, padded_vocab_size: int) -> int:
    """Bytes of the sampling workspace: batch * padded vocabulary * 34."""
    return max_batch_size * padded_vocab_size * DECODER_BYTES_PER_LOGIT


def max_tokens_by_volume(facts: ModelFacts, tensor_parallel: int) -> int:
    """Most tokens of one step before the widest tensor, gate and up together, passes TensorRT's tensor volume."""
    columns = 2 * -(-facts.intermediate_size // tensor_parallel)
    return MAX_TENSOR_ELEMENTS // max(columns, facts.hidden_size)


def _attention_columns(facts: ModelFacts, tensor_parallel: int) -> int:
    """Columns of qkv and of the attention output together."""
    heads = -(-facts.heads // tensor_parallel)
    return (2 * heads + 2 * kv_heads_per_rank(facts, tensor_parallel)) * facts.head_dim
