"""Every tensor of a TensorRT-LLM checkpoint, rank by rank, from a model's shapes alone.

The rows are what NVIDIA's converters write (0.17.0 and 1.3.0rc3, checked byte for byte against their output). An engine
keeps these weights in GPU memory as they are, so their bytes are the engine's weights. Our converter writes the same
rows (`trt_spec/build/checkpoint/`), which adds where the bytes of each come from.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from trt_spec.errors import SpecError
from trt_spec.plan.facts import ModelFacts
from trt_spec.plan.medusa_heads import MedusaHeads
from trt_spec.plan.shapes import kv_heads_per_rank, layers_per_rank, padded_vocab_size
from trt_spec.plan.toolchain.profile import CheckpointDialect
from trt_spec.spec.model import KvCacheDtype, Quantization
from trt_spec.util.safetensors_header import size_bytes

STORED = {"float32": "F32", "float16": "F16", "bfloat16": "BF16"}
"""torch's names of weight types, and how safetensors spells them."""

ENGINE_QUANTIZATIONS: tuple[Quantization, ...] = ("none", "fp8", "fp8_rowwise")
LAYER = "transformer.layers.{i}."
LayerKind = Literal["none", "fp8", "fp8_rowwise", "fp8_rowwise_mlp"]
"""How a layer is quantised; under Meta's recipe the middle ones in their MLP alone."""

# The modules that have a clamp_val in rowwise FP8.
CLAMPED: dict[LayerKind, tuple[str, ...]] = {
    "fp8_rowwise": ("attention", "mlp", "input_layernorm", "post_layernorm"),
    "fp8_rowwise_mlp": ("mlp", "post_layernorm"),
}


@dataclass(frozen=True)
class TensorRow:
    """``count`` tensors alike on one rank. ``name`` counts layers within the rank; dtype in safetensors' spelling."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    count: int = 1

    @property
    def total_bytes(self) -> int:
        """Bytes of all ``count`` tensors together."""
        return self.count * size_bytes(self.dtype, self.shape)


@dataclass(frozen=True)
class Split:
    """One model in one precision over tensor- and pipeline-parallel ranks.

    ``embedding_axis`` splits the input embedding by rows (0) or columns (1), None repeats it on every rank;
    ``meta_recipe`` is Meta's choice of what rowwise FP8 quantises: no attention, not the first and last layer.
    ``medusa`` are heads that the last stage holds beside its own.
    """

    facts: ModelFacts
    quantization: Quantization
    kv_cache_dtype: KvCacheDtype
    dtype: str
    tensor_parallel: int
    pipeline_parallel: int
    dialect: CheckpointDialect
    embedding_axis: Literal[0, 1] | None = None
    meta_recipe: bool = False
    medusa: MedusaHeads | None = None

    @property
    def has_rotary_tables(self) -> bool:
        """NVIDIA's Medusa converter leaves them to the builder, but for ModelOpt's checkpoints (convert_hf_llama)."""
        return self.medusa is None or self.quantization != "none"


def rank_weight_bytes(
    facts: ModelFacts,
    quantization: Quantization,
    dtype: str,
    tp: int,
    pp: int,
    dialect: CheckpointDialect,
    kv_cache_dtype: KvCacheDtype = "auto",
    medusa: MedusaHeads | None = None,
) -> tuple[int, ...]:
    """Bytes of all tensors of each rank, in the order of the rank files: pipeline rank * tp + tensor rank.

    Raises SpecError for a quantisation that engines do not have, or an unknown dtype.
    """
    split = Split(facts, quantization, kv_cache_dtype, dtype, tp, pp, dialect, medusa=medusa)
    stages = (sum(row.total_bytes for row in rank_rows(split, stage)) for stage in range(pp))
    return tuple(total for total in stages for _ in range(tp))


def largest_tensor_bytes(split: Split) -> int:
    """Bytes of the largest single tensor on any rank, which is what a streaming converter must hold."""
    rows = [row for stage in range(split.pipeline_parallel) for row in rank_rows(split, stage)]
    return max(size_bytes(row.dtype, row.shape) for row in rows)


def rank_rows(split: Split, pipeline_rank: int) -> tuple[TensorRow, ...]:
    """The tensors of any tensor-parallel rank of a pipeline stage: all ranks of a stage hold equal shapes."""
    if split.quantization not in ENGINE_QUANTIZATIONS:
        raise SpecError(
            f"Engines have no quantization {split.quantization}, expected one of {', '.join(ENGINE_QUANTIZATIONS)}.",
            remedy="Set quantization to fp8, or use `backend: onnx`.",
        )
    if split.dtype not in STORED:
        raise SpecError(f"Found dtype {split.dtype!r}, expected one of {', '.join(STORED)}.", remedy="Set dtype.")
    kinds = Counter(layer_kinds(split, pipeline_rank))
    rows = [
        TensorRow(row.name, row.shape, row.dtype, count)
        for kind, count in kinds.items()
        for row in layer_rows(split, kind)
    ]
    return (*rows, *stage_rows(split, pipeline_rank))


def layer_kinds(split: Split, pipeline_rank: int) -> tuple[LayerKind, ...]:
    """How each layer of a pipeline stage is quantised, in order."""
    layers = layers_per_rank(split.facts.layers, split.pipeline_parallel)[pipeline_rank]
    kind: LayerKind = split.quantization  # type: ignore[assignment]  # rank_rows and the converter checked it
    if not split.meta_recipe:
        return (kind,) * layers
    # TensorRT-LLM quantize.py, fp8_rowwise_quantize: "Meta's LLaMA 3.1 recipe".
    kinds: list[LayerKind] = ["fp8_rowwise_mlp"] * layers
    if pipeline_rank == 0:
        kinds[0] = "none"
    if pipeline_rank == split.pipeline_parallel - 1:
        kinds[-1] = "none"
    return tuple(kinds)


def layer_rows(split: Split, kind: LayerKind) -> tuple[TensorRow, ...]:
    """The tensors of one layer; ``{i}`` in a name stands for its number within the stage."""
    tensors = _layer_tensors(split, kind, STORED[split.dtype])
    return tuple(TensorRow(LAYER + name, shape, dtype) for name, shape, dtype in tensors)


def stage_rows(split: Split, pipeline_rank: int) -> tuple[TensorRow, ...]:
    """The tensors of a stage outside its layers: embedding on the first, head on the last, rotary tables on each."""
    facts, stored = split.facts, STORED[split.dtype]
    share = padded_vocab_size(facts.vocab_size, split.tensor_parallel) // split.tensor_parallel
    rows = []
    if pipeline_rank == 0:
        shapes = {
            None: (facts.vocab_size, facts.hidden_size),
            0: (share, facts.hidden_size),
            1: (facts.vocab_size, facts.hidden_size // split.tensor_parallel),
        }
        rows.append(TensorRow("transformer.vocab_embedding.weight", shapes[split.embedding_axis], stored))
    if pipeline_rank == split.pipeline_parallel - 1:
        rows.append(TensorRow("transformer.ln_f.weight", (facts.hidden_size,), stored))
        rows.append(TensorRow("lm_head.weight", (share, facts.hidden_size), stored))
        if split.medusa is not None:
            rows += medusa_rows(split.medusa, facts, split.tensor_parallel, stored)
    return (*rows, *(rotary_tables(facts) if split.has_rotary_tables else ()))


def medusa_rows(heads: MedusaHeads, facts: ModelFacts, tp: int, stored: str) -> Iterator[TensorRow]:
    """The tensors of all heads on a rank: split by output rows, biases too, and FP8 numbers widened to ``stored``.

    TensorRT-LLM models/medusa/weight.py (load_medusa_hf); no recorded output shows FP8 heads.
    """
    hidden, rows = facts.hidden_size, facts.hidden_size // tp
    for head in range(heads.count):
        modules = [(f"medusa_layers.{layer}.linear", rows) for layer in range(heads.layers)]
        for module, columns in (*modules, ("lm_head", facts.vocab_size // tp)):
            name = f"medusa_heads.{head}.{module}"
            yield TensorRow(f"{name}.weight", (columns, hidden), stored)
            if module != "lm_head":
                yield TensorRow(f"{name}.bias", (columns,), stored)
            if heads.is_fp8:
                yield TensorRow(f"{name}.activation_scaling_factor", (1,), "F32")
                yield TensorRow(f"{name}.weights_scaling_factor", (1,), "F32")


def rotary_tables(facts: ModelFacts) -> Iterator[TensorRow]:
    """Cosines and sines for every position, twice in two layouts, and the frequencies: on every rank."""
    positions, head_dim = facts.max_position_embeddings, facts.head_dim
    yield TensorRow("embed_positions", (1, positions, head_dim), "F32")
    yield TensorRow("embed_positions_for_gpt_attention", (1, positions * head_dim), "F32")
    yield TensorRow("rotary_inv_freq", (head_dim // 2,), "F32")


def _layer_tensors(split: Split, kind: LayerKind, stored: str) -> Iterator[tuple[str, tuple[int, ...], str]]:
    facts = split.facts
    yield "input_layernorm.weight", (facts.hidden_size,), stored
    yield "post_layernorm.weight", (facts.hidden_size,), stored
    for name, rows, columns, has_bias in _linears(facts, split.tensor_parallel):
        yield from _linear_tensors(kind, name, rows, columns, stored)
        if has_bias:
            yield f"{name}.bias", (rows,), stored
    for module in CLAMPED.get(kind, ()):
        yield f"{module}.clamp_val", (2,), "F32"
    if split.kv_cache_dtype == "fp8":
        yield "attention.kv_cache_scaling_factor", (1,), "F32"
        if split.dialect != "0.17":
            yield "attention.kv_cache_rcp_scaling_factor", (1,), "F32"


def _linears(facts: ModelFacts, tp: int) -> Iterator[tuple[str, int, int, bool]]:
    """Name, output rows, input columns on a rank, and whether there is a bias.

    qkv, fc and gate are split by rows, dense and proj by columns; a bias has as many elements as its rows on the rank.
    """
    hidden, heads = facts.hidden_size, -(-facts.heads // tp)
    columns = -(-facts.intermediate_size // tp)
    qkv_rows = (heads + 2 * kv_heads_per_rank(facts, tp)) * facts.head_dim
    yield "attention.qkv", qkv_rows, hidden, facts.qkv_bias
    yield "attention.dense", hidden, heads * facts.head_dim, facts.output_bias
    yield "mlp.fc", columns, hidden, facts.mlp_bias
    yield "mlp.gate", columns, hidden, facts.mlp_bias
    yield "mlp.proj", hidden, columns, facts.mlp_bias


def _linear_tensors(
    kind: LayerKind, name: str, rows: int, columns: int, stored: str
) -> Iterator[tuple[str, tuple[int, ...], str]]:
    rowwise = kind == "fp8_rowwise" or (kind == "fp8_rowwise_mlp" and name.startswith("mlp."))
    yield f"{name}.weight", (rows, columns), "F8_E4M3" if rowwise or kind == "fp8" else stored
    if kind == "fp8":
        yield f"{name}.weights_scaling_factor", (1,), "F32"
        yield f"{name}.activation_scaling_factor", (1,), "F32"
    elif rowwise:
        yield f"{name}.per_channel_scale", (rows,), "F32"
