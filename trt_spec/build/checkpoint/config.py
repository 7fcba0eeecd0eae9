"""config.json of a TensorRT-LLM checkpoint, key by key as NVIDIA's converter of each dialect writes it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trt_spec.build.checkpoint.families import find_family
from trt_spec.build.checkpoint.medusa import render_medusa_config
from trt_spec.build.checkpoint.shard import Sharding
from trt_spec.plan.tensors import Split

ALGORITHMS = {"none": None, "fp8": "FP8", "fp8_rowwise": "FP8_PER_CHANNEL_PER_TOKEN"}
GPUS_PER_NODE = 8  # NVIDIA's default; the launcher counts its own

_MAPPING_LATER: dict[str, Any] = {
    "attn_cp_size": 1,
    "cp_config": {},
    "enable_attention_dp": False,
    "enable_lm_head_tp_in_adp": False,
}


def render_config(
    sharding: Sharding, source_config: Mapping[str, Any], quantization: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """The document; ``source_config`` is the Hugging Face config.json, whose rotary scaling is passed on verbatim.

    ``quantization`` is that section of hf_quant_config.json, which goes into Medusa checkpoints as it is.
    """
    split = sharding.split
    facts = split.facts
    if split.medusa is not None:
        scaling = _rotary_scaling(source_config)
        return render_medusa_config(split, source_config, scaling, quantization or {}, sharding.max_draft_len)
    return {
        "mlp_bias": facts.mlp_bias,
        "attn_bias": facts.qkv_bias,
        "rotary_base": facts.rope_theta,
        "rotary_scaling": _rotary_scaling(source_config),
        **find_family(facts.architecture).config[split.dialect],
        "architecture": facts.architecture,
        "dtype": split.dtype,
        "vocab_size": facts.vocab_size,
        "hidden_size": facts.hidden_size,
        "num_hidden_layers": facts.layers,
        "num_attention_heads": facts.heads,
        "hidden_act": source_config.get("hidden_act", "silu"),
        "logits_dtype": "float32",
        "norm_epsilon": facts.rms_norm_eps,
        "runtime_defaults": None,
        "position_embedding_type": "rope_gpt_neox",
        "num_key_value_heads": facts.kv_heads,
        "intermediate_size": facts.intermediate_size,
        "max_position_embeddings": facts.max_position_embeddings,
        "mapping": _mapping(split),
        "quantization": _quantization(sharding),
        "use_parallel_embedding": split.embedding_axis is not None,
        "embedding_sharding_dim": split.embedding_axis or 0,
        "head_size": facts.head_dim,
        "qk_layernorm": False,
        "rotary_embedding_dim": facts.head_dim,
        "tie_word_embeddings": facts.tied_embeddings,
    }


def _rotary_scaling(source_config: Mapping[str, Any]) -> dict[str, Any] | None:
    """The older files' rope_scaling as it is; transformers 5 keeps the base in the same object, and "default" there."""
    settings = source_config.get("rope_scaling") or source_config.get("rope_parameters") or {}
    scaling = {key: value for key, value in settings.items() if key != "rope_theta"}
    return None if (scaling.get("rope_type") or scaling.get("type") or "default") == "default" else scaling


def _mapping(split: Split) -> dict[str, Any]:
    tp, pp = split.tensor_parallel, split.pipeline_parallel
    sizes = {"world_size": tp * pp, "gpus_per_node": GPUS_PER_NODE, "cp_size": 1, "tp_size": tp, "pp_size": pp}
    experts = {"moe_tp_size": tp, "moe_ep_size": 1}
    if split.dialect == "0.17":
        # Mapping(**mapping) of these versions stops at any other key.
        return {**sizes, **experts}
    return {**sizes, **experts, "moe_cluster_size": 1, "attn_tp_size": tp, **_MAPPING_LATER}


def _quantization(sharding: Sharding) -> dict[str, Any]:
    split = sharding.split
    later = {} if split.dialect == "0.17" else {"mamba_ssm_cache_dtype": None}
    return {
        "quant_algo": ALGORITHMS[split.quantization],
        "kv_cache_quant_algo": "FP8" if split.kv_cache_dtype == "fp8" else None,
        "group_size": 128,
        "smoothquant_val": 0.5,
        "clamp_val": None if sharding.clamp is None else list(sharding.clamp),
        "use_meta_recipe": split.meta_recipe,
        "has_zero_point": False,
        "pre_quant_scale": False,
        "exclude_modules": None,
        **later,
    }
