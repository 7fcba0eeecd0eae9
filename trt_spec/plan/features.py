"""What a config.json may ask for that engines of trtspec do not compute, and would therefore get wrong in silence.

A checkpoint that calls itself Llama or Qwen2 can carry settings of its relatives. Each is refused by name; so is a
tensor that the family does not know, when the engine is built.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from trt_spec.errors import SpecError

_ANOTHER = "Choose a model without it."


def _is_set(value: Any) -> bool:
    return bool(value)


def _is_not_one(value: Any) -> bool:
    return value is not None and (isinstance(value, bool) or value != 1)


def _is_any(value: Any) -> bool:
    return value is not None


def _has_other_than(allowed: Any) -> Callable[[Any], bool]:
    return lambda value: value is not None and (not isinstance(value, list) or any(item != allowed for item in value))


# What is refused: words for people, whether a value asks for it, and the keys. Names are those of transformers' and of
# their authors' configuration classes: Gemma 2 (softcapping, query_pre_attn_scalar), Granite and Cohere (multipliers),
# MiniCPM (scale_*), Mixtral, Qwen2-MoE and DeepSeek (experts), Llama 4 and SmolLM3 (layers without rotary embeddings,
# chunks), DBRX and OLMo (clip_qkv), Phi and Cohere (norms of q and k), GPT-J's order of rotary pairs.
_UNSUPPORTED: tuple[tuple[str, Callable[[Any], bool], tuple[str, ...]], ...] = (
    ("sliding-window attention", _has_other_than("full_attention"), ("layer_types",)),
    ("attention in chunks", _is_set, ("attention_chunk_size",)),
    (
        "soft capping of logits",
        _is_any,
        ("attn_logit_softcapping", "final_logit_softcapping", "logit_softcapping", "attn_logit_softcap"),
    ),
    (
        "scaling of activations",
        _is_not_one,
        (
            "attention_multiplier",
            "embedding_multiplier",
            "logit_scale",
            "logits_scaling",
            "residual_multiplier",
            "scale_emb",
        ),
    ),
    ("scaling of activations", _is_any, ("query_pre_attn_scalar", "scale_depth", "dim_model_base")),
    (
        "a mixture of experts",
        _is_set,
        ("num_local_experts", "num_experts", "n_routed_experts", "moe_intermediate_size", "num_experts_per_tok"),
    ),
    ("normalised queries and keys", _is_set, ("use_qk_norm", "qk_norm", "qk_layernorm")),
    ("clipped queries, keys and values", _is_any, ("clip_qkv",)),
    ("layers without rotary embeddings", _has_other_than(1), ("no_rope_layers",)),
    ("interleaved rotary pairs", _is_set, ("rope_interleaved", "rope_interleave")),
    ("ALiBi positions", _is_set, ("alibi",)),
    ("rotary embeddings of images", _is_set, ("use_mrope",)),
    ("rotary embeddings that differ between layers", _is_any, ("rope_local_base_freq",)),
    ("attention temperature", _is_set, ("attn_temperature_tuning",)),
)
_SLIDING = "sliding-window attention"


def check_features(config: Mapping[str, Any], source: str) -> None:
    """Raises SpecError for the first unsupported feature of a parsed ``config.json``; ``source`` names the file."""
    # Qwen2 files carry a window that only use_sliding_window switches on.
    window = config.get("sliding_window") and config.get("model_type") != "qwen2"
    if config.get("use_sliding_window") or (window and config.get("use_sliding_window") is not False):
        raise _refusal(source, _SLIDING, "use_sliding_window" if config.get("use_sliding_window") else "sliding_window")
    activation = config.get("hidden_act", "silu")
    if activation not in ("silu", "swish"):
        raise SpecError(f"{source}: hidden_act {activation!r} is not supported.", remedy="Expected 'silu'.")
    for key in ("partial_rotary_factor", "rotary_pct"):
        if _is_not_one(_rotary_setting(config, key)):
            raise _refusal(source, "partial rotary embeddings", key)
    for words, asks_for, keys in _UNSUPPORTED:
        for key in keys:
            if asks_for(config.get(key)):
                raise _refusal(source, words, key)


def _rotary_setting(config: Mapping[str, Any], key: str) -> Any:
    """transformers 5 writes it among the rope parameters."""
    settings = config.get("rope_parameters")
    inner = settings.get(key) if isinstance(settings, Mapping) else None
    return config.get(key) if inner is None else inner


def _refusal(source: str, words: str, key: str) -> SpecError:
    remedy = "Set it to false only if the model was trained without it." if words == _SLIDING else _ANOTHER
    return SpecError(f"{source}: {key} asks for {words}, which is not supported.", remedy=remedy)
