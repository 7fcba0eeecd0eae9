"""Llama: where each tensor comes from. NVIDIA calls the gate `fc` and the up projection `gate`."""

from __future__ import annotations

from typing import Any

from trt_spec.build.checkpoint.mapping import Family, Part, Row

LAYER = "transformer.layers.{i}."
THEIR_LAYER = "model.layers.{i}."

ROWS = (
    Row("transformer.vocab_embedding", (Part("model.embed_tokens", "vocab", "hidden"),), "embedding"),
    Row("transformer.ln_f", (Part("model.norm", "hidden"),), "none"),
    Row("lm_head", (Part("lm_head", "vocab", "hidden"),), "vocab"),
    Row(LAYER + "input_layernorm", (Part(THEIR_LAYER + "input_layernorm", "hidden"),), "none"),
    Row(LAYER + "post_layernorm", (Part(THEIR_LAYER + "post_attention_layernorm", "hidden"),), "none"),
    Row(
        LAYER + "attention.qkv",
        (
            Part(THEIR_LAYER + "self_attn.q_proj", "q", "hidden"),
            Part(THEIR_LAYER + "self_attn.k_proj", "kv", "hidden"),
            Part(THEIR_LAYER + "self_attn.v_proj", "kv", "hidden"),
        ),
        "rows",
    ),
    Row(LAYER + "attention.dense", (Part(THEIR_LAYER + "self_attn.o_proj", "hidden", "q"),), "columns"),
    Row(LAYER + "mlp.fc", (Part(THEIR_LAYER + "mlp.gate_proj", "inner", "hidden"),), "rows"),
    Row(LAYER + "mlp.gate", (Part(THEIR_LAYER + "mlp.up_proj", "inner", "hidden"),), "rows"),
    Row(LAYER + "mlp.proj", (Part(THEIR_LAYER + "mlp.down_proj", "hidden", "inner"),), "columns"),
)
KV_SCALES = (THEIR_LAYER + "self_attn.k_proj.k_scale", THEIR_LAYER + "self_attn.v_proj.v_scale")
# Rotary frequencies that old exports stored (they follow from config.json), and fbgemm's bound of activations, which is
# in config.json, too.
IGNORED = (r"model\.layers\.\d+\.self_attn\.rotary_emb\.inv_freq", r"model\.layers\.\d+\..*\.input_scale_ub")

MOE: dict[str, Any] = {
    "num_experts": 0,
    "shared_expert_intermediate_size": 0,
    "top_k": 0,
    "normalization_mode": None,
    "sparse_mixer_epsilon": 0.01,
    "tp_mode": 0,
    "device_limited_n_group": 0,
    "device_limited_topk_group": 0,
    "device_limited_routed_scaling_factor": 1.0,
}
_CONFIG: dict[str, Any] = {
    "residual_mlp": False,
    "disable_weight_only_quant_plugin": False,
    "moe": MOE,
    "remove_duplicated_kv_heads": False,
    "fc_after_embed": False,
    "use_input_layernorm_in_first_layer": True,
    "use_last_layernorm": True,
    "layer_idx_offset": 0,
}
_CONFIG_LATER: dict[str, Any] = {
    "embedding_multiplier": 1.0,
    "attention_multiplier": 1.0,
    "residual_multiplier": 1.0,
    "output_multiplier_scale": 1.0,
    "has_partial_lora_mask": False,
}

FAMILY = Family(
    rows=ROWS,
    kv_scales=KV_SCALES,
    ignored=IGNORED,
    config={"0.17": _CONFIG, "1.3.0rc3": {**_CONFIG, **_CONFIG_LATER}},
)
