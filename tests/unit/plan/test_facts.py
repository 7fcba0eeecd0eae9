import json

import numpy as np
import pytest

from trt_spec.errors import SpecError
from trt_spec.plan.facts import RopeScaling, resolve_facts, rotary_frequencies

LLAMA = {
    "architectures": ["LlamaForCausalLM"],
    "vocab_size": 128256,
    "hidden_size": 3072,
    "intermediate_size": 8192,
    "num_hidden_layers": 28,
    "num_attention_heads": 24,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "max_position_embeddings": 131072,
    "rms_norm_eps": 1e-5,
    "rope_theta": 500000.0,
    "rope_scaling": {
        "rope_type": "llama3",
        "factor": 32.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    },
    "tie_word_embeddings": True,
}


def facts_of(**changes):
    config = {**LLAMA, **changes}
    return resolve_facts({key: value for key, value in config.items() if value is not None}, source="config.json")


def test_the_published_config_of_llama_3_2_3b_is_read():
    facts = facts_of()
    assert (facts.family, facts.layers, facts.heads, facts.kv_heads, facts.head_dim) == ("llama", 28, 24, 8, 128)
    assert facts.rope_scaling == RopeScaling("llama3", 32.0, 1.0, 4.0, 8192)
    assert facts.tied_embeddings
    assert not facts.qkv_bias
    assert not facts.output_bias


def test_both_spellings_of_rotary_settings_mean_the_same():
    new = facts_of(
        rope_theta=None, rope_scaling=None, rope_parameters={**LLAMA["rope_scaling"], "rope_theta": 500000.0}
    )
    assert new == facts_of()
    plain = facts_of(rope_theta=None, rope_scaling=None, rope_parameters={"rope_type": "default", "rope_theta": 7.0})
    assert (plain.rope_theta, plain.rope_scaling) == (7.0, None)


def test_head_dim_and_kv_heads_have_their_defaults():
    facts = facts_of(head_dim=None, num_key_value_heads=None)
    assert (facts.head_dim, facts.kv_heads) == (3072 // 24, 24)


@pytest.mark.parametrize(
    ("changes", "qkv", "output", "mlp"),
    [
        ({}, False, False, False),
        ({"attention_bias": True}, True, True, False),
        ({"mlp_bias": True}, False, False, True),
        ({"architectures": ["Qwen2ForCausalLM"]}, True, False, False),
    ],
)
def test_biases_by_family(changes, qkv, output, mlp):
    facts = facts_of(**changes)
    assert (facts.qkv_bias, facts.output_bias, facts.mlp_bias) == (qkv, output, mlp)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"architectures": ["GPT2LMHeadModel"]}, "LlamaForCausalLM, Qwen2ForCausalLM"),
        ({"architectures": None}, "'none'"),
        ({"hidden_size": None}, "hidden_size is None"),
        ({"num_hidden_layers": "28"}, "num_hidden_layers is '28'"),
        ({"num_key_value_heads": 7}, "24 attention heads cannot share 7"),
        ({"use_sliding_window": True}, "sliding-window"),
        ({"hidden_act": "gelu"}, "'gelu'"),
        ({"partial_rotary_factor": 0.5}, "partial rotary"),
        ({"rope_scaling": {"rope_type": "yarn", "factor": 4.0}}, "'yarn'"),
        ({"rope_scaling": {"rope_type": "llama3", "factor": 4.0}}, "low_freq_factor"),
        ({"rope_scaling": "llama3"}, "rope settings"),
        ({"rope_theta": "big"}, "rope_theta is 'big'"),
        ({"architectures": {"a": 1}}, "'none'"),
        ({"architectures": [["LlamaForCausalLM"]]}, "not supported"),
        ({"rms_norm_eps": float("nan")}, "rms_norm_eps is nan"),
        ({"rms_norm_eps": "small"}, "rms_norm_eps is 'small'"),
        ({"tie_word_embeddings": "false"}, "tie_word_embeddings is 'false', expected true or false"),
        ({"num_hidden_layers": 10**9}, "at most"),
        ({"head_dim": 63}, "must be even"),
    ],
)
def test_what_would_be_built_wrongly_is_refused(changes, words):
    with pytest.raises(SpecError, match=words):
        facts_of(**changes)


@pytest.mark.parametrize(
    ("changes", "parameters"),
    [
        ({}, 3_212_749_824),  # Llama 3.2 3B as published
        (  # Llama 3.1 8B
            {
                "hidden_size": 4096,
                "intermediate_size": 14336,
                "num_hidden_layers": 32,
                "num_attention_heads": 32,
                "tie_word_embeddings": False,
            },
            8_030_261_248,
        ),
    ],
)
def test_parameters_are_those_of_the_published_models(changes, parameters):
    assert facts_of(**changes).parameters == parameters


def test_dtype_and_end_ids_in_all_spellings():
    assert facts_of(torch_dtype="bfloat16").dtype == facts_of(dtype="bfloat16").dtype == "bfloat16"
    assert facts_of(eos_token_id=[1, 2]).eos_ids == (1, 2)
    assert facts_of(eos_token_id=7).eos_ids == (7,)
    assert facts_of().eos_ids == ()


def test_llama3_frequencies_keep_short_waves_and_stretch_long_ones():
    facts = facts_of()
    plain = np.array(rotary_frequencies(facts_of(rope_scaling=None)))
    scaled = np.array(rotary_frequencies(facts))
    wavelengths = 2 * np.pi / plain
    assert np.array_equal(scaled[wavelengths < 8192 / 4], plain[wavelengths < 8192 / 4])
    np.testing.assert_allclose(scaled[wavelengths > 8192], plain[wavelengths > 8192] / 32)
    between = (wavelengths > 8192 / 4) & (wavelengths < 8192)
    assert between.any()
    assert ((scaled < plain) & (scaled > plain / 32))[between].all()


def test_linear_scaling_divides_every_frequency():
    scaled = rotary_frequencies(facts_of(rope_scaling={"type": "linear", "factor": 2.0}))
    np.testing.assert_allclose(scaled, np.array(rotary_frequencies(facts_of(rope_scaling=None))) / 2)


def test_the_facts_are_those_of_every_tiny_checkpoint(tiny):
    for file in tiny.glob("*/config.json"):
        facts = resolve_facts(json.loads(file.read_text()), source=str(file))
        assert facts.layers >= 2
