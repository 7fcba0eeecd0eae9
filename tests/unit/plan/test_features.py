"""Settings that engines of trtspec would compute wrongly, each refused by name, and their harmless values."""

import pytest

from trt_spec.errors import SpecError
from trt_spec.plan.facts import resolve_facts
from trt_spec.plan.features import check_features

REFUSED = [
    ({"use_sliding_window": True}, "use_sliding_window asks for sliding-window"),
    ({"use_sliding_window": True, "model_type": "qwen2", "sliding_window": 4096}, "use_sliding_window"),
    ({"sliding_window": 4096, "model_type": "llama"}, "sliding_window asks for"),
    ({"layer_types": ["full_attention", "sliding_attention"]}, "layer_types asks for sliding-window"),
    ({"layer_types": "sliding_attention"}, "layer_types"),
    ({"attention_chunk_size": 8192}, "chunks"),
    ({"attn_logit_softcapping": 50.0}, "soft capping"),
    ({"final_logit_softcapping": 30.0}, "soft capping"),
    ({"logits_scaling": 8.0}, "scaling of activations"),
    ({"residual_multiplier": 0.22}, "residual_multiplier"),
    ({"logit_scale": 0.0625}, "logit_scale"),
    ({"query_pre_attn_scalar": 224}, "query_pre_attn_scalar"),
    ({"num_local_experts": 8}, "mixture of experts"),
    ({"num_experts": 60}, "mixture of experts"),
    ({"n_routed_experts": 64}, "mixture of experts"),
    ({"qk_layernorm": True}, "normalised queries"),
    ({"clip_qkv": 8.0}, "clipped"),
    ({"no_rope_layers": [1, 1, 0]}, "without rotary"),
    ({"rope_interleaved": True}, "interleaved"),
    ({"alibi": True}, "ALiBi"),
    ({"use_mrope": True}, "images"),
    ({"rope_local_base_freq": 10000.0}, "differ between layers"),
    ({"partial_rotary_factor": 0.5}, "partial rotary"),
    ({"partial_rotary_factor": "half"}, "partial rotary"),
    ({"rope_parameters": {"rope_type": "default", "partial_rotary_factor": 0.25}}, "partial rotary"),
    ({"rotary_pct": 0.25}, "partial rotary"),
    ({"hidden_act": "gelu"}, "'gelu'"),
]
HARMLESS = [
    {"use_sliding_window": False, "sliding_window": 131072, "model_type": "qwen2", "max_window_layers": 28},
    {"sliding_window": None, "use_sliding_window": False},
    {"layer_types": ["full_attention", "full_attention"]},
    {"attn_logit_softcapping": None, "final_logit_softcapping": None},
    {"logits_scaling": 1.0, "residual_multiplier": 1, "embedding_multiplier": 1.0},
    {"num_local_experts": 0, "num_experts_per_tok": 0},
    {"no_rope_layers": [1, 1], "rope_interleaved": False, "use_mrope": False, "qk_layernorm": False},
    {"partial_rotary_factor": 1.0, "hidden_act": "swish"},
    {"pretraining_tp": 2, "attention_dropout": 0.1, "is_llama_config": True},
]


@pytest.mark.parametrize(("config", "words"), REFUSED, ids=lambda value: str(value)[:50])
def test_what_would_be_computed_wrongly_is_refused_by_name(config, words):
    with pytest.raises(SpecError, match=words) as raised:
        check_features(config, "config.json")
    assert raised.value.remedy


@pytest.mark.parametrize("config", HARMLESS, ids=str)
def test_neutral_values_pass(config):
    check_features(config, "config.json")


@pytest.mark.parametrize(
    "settings",
    [
        {"factor": 4.0},
        {"rope_type": "default", "factor": 2.0},
        {"full_attention": {"rope_theta": 1e6}, "sliding_attention": {"rope_theta": 1e4}},
    ],
)
def test_rope_settings_that_scale_without_a_type_are_refused(make_files, settings):
    config = {**make_files().config, "rope_parameters": settings}
    with pytest.raises(SpecError, match="name no rope type"):
        resolve_facts(config, source="config.json")


@pytest.mark.parametrize("rope_type", ["yarn", "dynamic", "longrope", "su", "mrope"])
def test_unknown_rope_types_are_refused(make_files, rope_type):
    config = {**make_files().config, "rope_scaling": {"type": rope_type, "factor": 4.0}}
    with pytest.raises(SpecError, match=rope_type):
        resolve_facts(config, source="config.json")
