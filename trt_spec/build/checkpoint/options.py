"""What a conversion is asked for, and what that means for one source: refusals come before anything is written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, get_args

from trt_spec.build.checkpoint.dialect import DialectChoice, resolve_dialect
from trt_spec.build.checkpoint.families import find_family
from trt_spec.build.checkpoint.shard import FP8, Sharding
from trt_spec.build.checkpoint.source import Source
from trt_spec.build.source.shards import CONFIG_NAME
from trt_spec.errors import SpecError
from trt_spec.plan.facts import ModelFacts, resolve_facts
from trt_spec.plan.medusa_heads import MedusaHeads, holds_heads, resolve_heads
from trt_spec.plan.medusa_target import check_medusa_target
from trt_spec.plan.shapes import valid_tensor_parallel
from trt_spec.plan.source_quantization import SPEC_NAMES, UNQUANTISED, resolve_source_quantization
from trt_spec.plan.tensors import Split
from trt_spec.spec.model import DEFAULT_TENSORRT_LLM, Dtype, KvCacheDtype, Quantization

AskedQuantization = Literal["auto", Quantization]
CLAMP = (-1200.0, 1200.0)  # NVIDIA's default bound of activations in rowwise FP8


@dataclass(frozen=True)
class MedusaOptions:
    """Write a Medusa checkpoint: ``heads`` is the folder of the heads, None if the source holds them itself.

    ``max_draft_len`` is the most nodes of the tree that an engine of it verifies.
    """

    heads: Path | None
    max_draft_len: int


@dataclass(frozen=True)
class ConvertOptions:
    """``quantization`` auto takes over what the source's own files say, ``dtype`` auto its weight type.

    ``embedding_axis`` splits the embedding over ranks by rows (0) or columns (1); ``meta_recipe`` leaves attention and
    the first and last layer unquantised (fp8_rowwise only); ``workers`` ranks are written at a time, None for one a
    processor.
    """

    model: Path
    output: Path
    tensor_parallel: int = 1
    pipeline_parallel: int = 1
    dtype: Dtype = "auto"
    quantization: AskedQuantization = "auto"
    kv_cache_dtype: KvCacheDtype = "auto"
    meta_recipe: bool = False
    embedding_axis: Literal[0, 1] | None = None
    tensorrt_llm: str = DEFAULT_TENSORRT_LLM
    workers: int | None = None
    medusa: MedusaOptions | None = None


@dataclass(frozen=True)
class Resolved:
    """A conversion that can be done; ``warnings`` are sentences for the user."""

    sharding: Sharding
    dialect: DialectChoice
    warnings: tuple[str, ...]


def resolve_conversion(options: ConvertOptions, source: Source) -> Resolved:
    """Decide everything from the small files and headers. Raises SpecError for what cannot be converted."""
    dialect = resolve_dialect(options.tensorrt_llm)
    facts = resolve_facts(source.files.config, source=str(source.folder / CONFIG_NAME))
    find_family(facts.architecture)
    stored = resolve_source_quantization(source.files)
    quantization = _resolve_quantization(options.quantization, stored)
    _check_split(options, facts, dialect)
    stored_fp8 = stored != UNQUANTISED
    meta_recipe = _resolve_meta_recipe(options, quantization, stored_fp8, source)
    kv_cache_dtype, kv_warnings = _resolve_kv_cache(options, quantization, source)
    dtype, dtype_warnings = _resolve_dtype(options.dtype, facts)
    heads, head_warnings = _resolve_heads(options, quantization, facts, source)
    split = Split(
        facts,
        quantization,
        kv_cache_dtype,
        dtype,
        options.tensor_parallel,
        options.pipeline_parallel,
        dialect.dialect,
        options.embedding_axis,
        meta_recipe,
        heads,
    )
    clamp = _resolve_clamp(source.files.config, quantization)
    draft_len = 0 if options.medusa is None else options.medusa.max_draft_len
    sharding = Sharding(split, stored_fp8, clamp, _ties_head(facts, source), draft_len)
    warnings = (*source.warnings, *dtype_warnings, *kv_warnings, *head_warnings, *_warn_replicated(split))
    return Resolved(sharding, dialect, warnings)


def _resolve_heads(
    options: ConvertOptions, quantization: Quantization, facts: ModelFacts, source: Source
) -> tuple[MedusaHeads | None, tuple[str, ...]]:
    """The heads to write, and what to tell of them. Raises SpecError for the first thing that stands against them."""
    if options.medusa is None:
        if holds_heads(source.files):
            raise SpecError(
                f"{source.folder} holds Medusa heads, which a plain checkpoint has no place for.",
                remedy="Add --medusa-draft-len N, the nodes of the tree, to write a Medusa checkpoint.",
            )
        return None, ()
    target = replace(source.files, tensors=source.tensors)
    heads, findings = resolve_heads(target, facts, source.heads)
    split = options.tensor_parallel, options.pipeline_parallel
    findings = (*findings, *(check_medusa_target(facts, heads, *split) if heads is not None else ()))
    for finding in findings:
        if finding.severity == "refuse":
            raise SpecError(finding.message, remedy=finding.remedy)
    if quantization == "fp8_rowwise":
        raise SpecError(
            "quantization fp8_rowwise is not written for Medusa checkpoints.",
            remedy="Use none, or a ModelOpt checkpoint in FP8 that holds its heads.",
        )
    return heads, tuple(finding.message for finding in findings if finding.severity == "warn")


def _resolve_quantization(asked: AskedQuantization, stored: str) -> Quantization:
    if stored != UNQUANTISED and stored not in SPEC_NAMES:
        raise SpecError(
            f"The weights are stored in {stored}, which is not converted.",
            remedy="Start from the model's unquantised checkpoint, or from one in FP8 that ModelOpt exported.",
        )
    own = SPEC_NAMES.get(stored, "none")
    if asked in ("int8", "int4"):
        raise SpecError(
            f"quantization {asked}: weight-only layouts are made by NVIDIA's operator library, which needs a GPU.",
            remedy="Use fp8 or fp8_rowwise, or run NVIDIA's own convert_checkpoint.py with --use_weight_only "
            f"--weight_only_precision {asked} in the TensorRT-LLM container.",
        )
    if asked == "fp8" and stored == UNQUANTISED:
        raise SpecError(
            "quantization fp8 needs scales from a calibration on a GPU, and the checkpoint has none.",
            remedy="Name a checkpoint that ModelOpt exported in FP8, quantise this one with NVIDIA's quantize.py "
            "--qformat fp8, or use fp8_rowwise, which needs no calibration.",
        )
    if stored != UNQUANTISED and asked not in ("auto", own):
        raise SpecError(
            f"The weights are stored in {stored} already, quantization {asked} was asked for.",
            remedy=f"Use --quantization {own}, or name the unquantised checkpoint.",
        )
    chosen = own if asked == "auto" else asked
    assert chosen in get_args(Quantization)
    return chosen  # type: ignore[return-value]


def _check_split(options: ConvertOptions, facts: ModelFacts, dialect: DialectChoice) -> None:
    tp, pp = options.tensor_parallel, options.pipeline_parallel
    if tp not in valid_tensor_parallel(facts, up_to=max(tp, 1)):
        sizes = ", ".join(map(str, valid_tensor_parallel(facts)))
        raise SpecError(
            f"--tp {tp} does not divide this model: {facts.heads} attention heads, {facts.kv_heads} key/value heads, "
            f"{facts.intermediate_size} MLP columns.",
            remedy=f"Sizes that do: {sizes}.",
        )
    if not 1 <= pp <= facts.layers:
        raise SpecError(f"--pp {pp}: the model has {facts.layers} layers.", remedy=f"Use --pp 1 to {facts.layers}.")
    if facts.layers % pp and dialect.dialect == "0.17":
        # Mapping.pp_layers of these versions: layers // pp each. TensorRT-LLM pull request 3429 changed it.
        fitting = ", ".join(str(size) for size in range(1, min(facts.layers, 64) + 1) if not facts.layers % size)
        raise SpecError(
            f"--pp {pp}: {facts.layers} layers do not divide, and TensorRT-LLM 0.17, whose format "
            f"{options.tensorrt_llm} gets, would drop the last {facts.layers % pp} of them.",
            remedy=f"Use --pp {fitting}, or a newer TensorRT-LLM (1.2.1), which gives the first ranks one more.",
        )
    if options.embedding_axis == 1 and facts.hidden_size % tp:
        raise SpecError(
            f"--parallel-embedding 1: hidden size {facts.hidden_size} does not divide by {tp} ranks.",
            remedy="Use --parallel-embedding 0.",
        )


def _resolve_meta_recipe(options: ConvertOptions, quantization: Quantization, stored_fp8: bool, source: Source) -> bool:
    if options.meta_recipe and quantization != "fp8_rowwise":
        raise SpecError(
            f"--meta-recipe chooses what fp8_rowwise quantises, but quantization is {quantization}.",
            remedy="Add --quantization fp8_rowwise, or leave --meta-recipe out.",
        )
    if quantization != "fp8_rowwise" or not stored_fp8:
        return options.meta_recipe
    # Meta's own exports leave the first layer unquantised.
    first = source.tensors.get("model.layers.0.mlp.gate_proj.weight")
    stored_recipe = first is not None and first.dtype != FP8
    if options.meta_recipe and not stored_recipe:
        raise SpecError(
            "--meta-recipe leaves the first layer unquantised, but the checkpoint stores it in FP8.",
            remedy="Leave --meta-recipe out: the stored weights decide.",
        )
    return stored_recipe


def _resolve_kv_cache(
    options: ConvertOptions, quantization: Quantization, source: Source
) -> tuple[KvCacheDtype, tuple[str, ...]]:
    recorded = source.files.quantization.get("quantization")
    stored = recorded.get("kv_cache_quant_algo") if isinstance(recorded, Mapping) else None
    if stored not in (None, "FP8"):
        raise SpecError(
            f"The checkpoint wants a KV cache in {stored}, which is not converted.",
            remedy="Use a checkpoint exported with an FP8 KV cache or with none.",
        )
    if options.kv_cache_dtype == "auto" and stored is None:
        return "auto", ()
    warnings = []
    if not any(name.endswith((".k_scale", ".v_scale")) for name in source.spans):
        warnings.append(
            "The checkpoint has no KV cache scales; they are written as 1, as NVIDIA's converter does, which costs "
            "accuracy. A checkpoint that ModelOpt exported with an FP8 KV cache has them."
        )
    if quantization == "fp8_rowwise":
        warnings.append(
            "An FP8 KV cache with fp8_rowwise weights: TensorRT-LLM builds no engine from it that draft-target "
            "speculation can use, since paged context attention in FP8 needs fp8 weights. Use --kv-cache-dtype auto."
        )
    return "fp8", tuple(warnings)


def _resolve_dtype(asked: Dtype, facts: ModelFacts) -> tuple[str, tuple[str, ...]]:
    """As NVIDIA's infer_dtype: a float32 checkpoint becomes float16 unless float32 is asked for by name."""
    if asked != "auto":
        return asked, ()
    if facts.dtype == "float32":
        return "float16", ("The checkpoint is in float32: weights are written in float16. Use --dtype to choose.",)
    return facts.dtype, ()


def _resolve_clamp(config: Mapping[str, Any], quantization: Quantization) -> tuple[float, float] | None:
    if quantization != "fp8_rowwise":
        return None
    stored = config.get("quantization_config")
    bound = stored.get("activation_scale_ub") if isinstance(stored, Mapping) else None
    return CLAMP if bound is None else (-float(bound), float(bound))


def _ties_head(facts: ModelFacts, source: Source) -> bool:
    if "lm_head.weight" in source.spans:
        return False
    if facts.tied_embeddings:
        return True
    said = (
        "config.json says tie_word_embeddings false"
        if "tie_word_embeddings" in source.files.config
        else f"config.json does not set tie_word_embeddings, which is false for {facts.architecture}"
    )
    raise SpecError(
        f"{said}, but lm_head.weight was not found in any shard of {source.folder}.",
        remedy="Export the checkpoint again with its head, or set tie_word_embeddings to true if the model was trained "
        "with tied embeddings.",
    )


def _warn_replicated(split: Split) -> tuple[str, ...]:
    if split.quantization != "fp8" or split.tensor_parallel <= split.facts.kv_heads:
        return ()
    return (
        f"{split.facts.kv_heads} KV heads over {split.tensor_parallel} ranks in FP8: NVIDIA's converter stops at this. "
        "Heads are repeated here by the rule of unquantised weights; no recorded output confirms it.",
    )
