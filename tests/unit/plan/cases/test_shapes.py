"""Known failures of splitting a model over GPUs, each with its test input and the demanded verdict."""

import pytest

from trt_spec.plan.facts import resolve_facts
from trt_spec.plan.rope import check_rope
from trt_spec.plan.shapes import check_shapes, kv_heads_per_rank, padded_vocab_size

LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}


@pytest.fixture
def facts(make_files):
    return lambda **config: resolve_facts(make_files(**config).config, source="config.json")


def test_b021_more_ranks_than_kv_heads_replicate_them(known, codes):
    qwen = resolve_facts(known("Qwen/Qwen2.5-1.5B-Instruct").config, source="config.json")
    assert (qwen.heads, qwen.kv_heads) == (12, 2)
    (note,) = check_shapes(qwen, 4, 1, "target", "tokens")
    assert (note.code, note.severity) == ("shape-kv-replicated", "note")
    assert "replicates each KV head 2x, with their biases" in note.message
    assert kv_heads_per_rank(qwen, 4) == 1


@pytest.mark.parametrize(("heads", "kv_heads", "tp"), [(48, 8, 6), (12, 4, 6)])
def test_b021_kv_heads_that_do_not_divide_are_refused(facts, codes, heads, kv_heads, tp):
    model = facts(num_attention_heads=heads, num_key_value_heads=kv_heads, head_dim=64, intermediate_size=48 * 64)
    found = check_shapes(model, tp, 1, "target", "tokens")
    assert codes(found) == {"shape-kv-heads": "refuse"}
    assert f"{kv_heads} key/value heads over {tp} ranks" in found[0].message
    assert "Valid sizes" in found[0].remedy


@pytest.mark.parametrize(("tp", "padded"), [(2, 32002), (4, 32004)])
def test_b022_the_vocabulary_is_padded_to_the_ranks(facts, tp, padded):
    (note,) = check_shapes(facts(vocab_size=32001), tp, 1, "target", "tokens")
    assert padded_vocab_size(32001, tp) == padded
    assert (note.code, note.severity) == ("shape-vocab-padded", "note")
    assert f"vocabulary 32001 is padded to {padded} over {tp} ranks" in note.message


def test_b043_an_old_version_cannot_build_llama3_scaling():
    (found,) = check_rope({"rope_scaling": LLAMA3}, "0.10.0", "target")  # in container 24.06; 24.05 is older still
    assert found.severity == "refuse"
    for part in (
        "TensorRT-LLM 0.12.0 or newer",
        "Triton container 24.08",
        "transformers 4.43",
        "found TensorRT-LLM 0.10",
    ):
        assert part in found.message


@pytest.mark.parametrize("version", ["0.12.0", "0.18.0", "1.2.1", "1.3.0rc3"])  # 0.18.0 is in container 25.03
@pytest.mark.parametrize("key", ["rope_type", "type"])
def test_b043_newer_versions_build_it_under_both_keys(version, key):
    settings = {key if name == "rope_type" else name: value for name, value in LLAMA3.items()}
    assert check_rope({"rope_scaling": settings}, version, "target") == ()


def test_b043_an_unknown_rope_type_lists_the_supported():
    (found,) = check_rope({"rope_scaling": {"rope_type": "foo", "factor": 2.0}}, "1.2.1", "draft")
    assert (found.severity, found.role) == ("refuse", "draft")
    assert "'foo'" in found.message
    assert "default, linear, llama3" in found.remedy


@pytest.mark.parametrize("key", ["low_freq_factor", "high_freq_factor"])
def test_b043_a_missing_factor_is_refused(key):
    settings = {name: value for name, value in LLAMA3.items() if name != key}
    (found,) = check_rope({"rope_scaling": settings}, "1.2.1", "target")
    assert found.severity == "refuse"
    assert key in found.message


def test_b110_a_small_draft_over_many_gpus_is_warned_of(known, codes, make_spec):
    small = resolve_facts(known("meta-llama/Llama-3.2-1B-Instruct").config, source="config.json")
    (found,) = check_shapes(small, 4, 1, "draft", "tokens")
    assert (found.code, found.severity) == ("shape-draft-split", "warn")
    assert "1.2B" in found.message
    assert check_shapes(small, 1, 1, "draft", "tokens") == ()
    assert check_shapes(small, 4, 1, "target", "tokens") == ()  # as a target it may
    assert make_spec(target={"tensor_parallel": 4}).draft.tensor_parallel == 1  # the default


def test_b110_a_large_draft_may_be_split(known):
    large = resolve_facts(known("meta-llama/Llama-3.1-8B-Instruct").config, source="config.json")
    assert check_shapes(large, 4, 1, "draft", "tokens") == ()
