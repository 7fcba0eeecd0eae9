"""Bytes per rank against what NVIDIA's own converters wrote."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trt_spec.errors import SpecError
from trt_spec.plan.facts import resolve_facts
from trt_spec.plan.known_models import load_known_model
from trt_spec.plan.shapes import valid_tensor_parallel
from trt_spec.plan.tensors import Split, largest_tensor_bytes, rank_rows, rank_weight_bytes

CASES = json.loads((Path(__file__).parents[2] / "fixtures" / "golden_rank_bytes.json").read_text())
DIALECTS = {"0.17.0": "0.17", "1.3.0rc3": "1.3.0rc3"}
GOLDEN = [(case, version) for case in CASES for version in case["rank_bytes"]]


def known(reference):
    files = load_known_model(reference)
    return resolve_facts(files.config, source=files.origin)


LLAMA_405B = known("meta-llama/Llama-3.1-405B-Instruct")


@pytest.mark.parametrize(("case", "version"), GOLDEN, ids=[f"{case['id']}-{version}" for case, version in GOLDEN])
def test_bytes_of_each_rank_are_those_of_nvidias_converter(case, version):
    facts = resolve_facts(case["config"], source=case["id"])
    found = rank_weight_bytes(
        facts, case["quantization"], case["dtype"], case["tp"], case["pp"], DIALECTS[version], case["kv_cache_dtype"]
    )
    assert list(found) == case["rank_bytes"][version]


def test_the_recorded_cases_cover_what_engines_are_built_from():
    assert {case["quantization"] for case in CASES} == {"none", "fp8", "fp8_rowwise"}
    assert {"fp8", "auto"} == {case["kv_cache_dtype"] for case in CASES}
    assert {(1, 1), (2, 1), (4, 1), (1, 2), (2, 2), (1, 3)} <= {(case["tp"], case["pp"]) for case in CASES}
    assert any(case["config"]["tie_word_embeddings"] for case in CASES)
    assert any(case["config"]["vocab_size"] % case["tp"] for case in CASES)


def test_each_weight_is_counted_once_but_for_what_ranks_share():
    total = rank_weight_bytes(LLAMA_405B, "none", "bfloat16", 1, 1, "1.3.0rc3")
    rotary = 2 * 131072 * 128 * 4 + 64 * 4
    assert total == (2 * LLAMA_405B.parameters + rotary,)


def test_biases_follow_their_rows():
    facts = known("Qwen/Qwen2.5-72B-Instruct")
    rows = {row.name: row.shape for row in rank_rows(Split(facts, "none", "auto", "bfloat16", 4, 1, "1.3.0rc3"), 0)}
    # 64 query heads and 8 key/value heads of 128 over 4 ranks.
    assert rows["transformer.layers.{i}.attention.qkv.bias"] == ((16 + 2 * 2) * 128,)
    assert "transformer.layers.{i}.attention.dense.bias" not in rows


def test_kv_heads_are_repeated_beyond_their_number():
    rows = {
        row.name: row.shape for row in rank_rows(Split(LLAMA_405B, "none", "auto", "bfloat16", 16, 1, "1.3.0rc3"), 0)
    }
    assert rows["transformer.layers.{i}.attention.qkv.weight"] == ((8 + 2 * 1) * 128, 16384)


def test_the_largest_tensor_is_the_embedding_of_405b():
    split = Split(LLAMA_405B, "fp8", "fp8", "bfloat16", 4, 1, "1.3.0rc3")
    assert largest_tensor_bytes(split) == 128256 * 16384 * 2


def test_engines_have_no_int4_and_say_so():
    with pytest.raises(SpecError, match="no quantization int4"):
        rank_weight_bytes(LLAMA_405B, "int4", "bfloat16", 4, 1, "1.3.0rc3")


@given(
    st.sampled_from(["none", "fp8", "fp8_rowwise"]),
    st.sampled_from([(1, 1), (1, 2), (2, 1), (2, 3), (4, 2)]),
)
def test_more_ranks_never_mean_more_bytes_on_a_rank(quantization, shape):
    pp = shape[1]
    sizes = [
        max(rank_weight_bytes(LLAMA_405B, quantization, "bfloat16", tp, pp, "1.3.0rc3"))
        for tp in valid_tensor_parallel(LLAMA_405B)
    ]
    assert sizes == sorted(sizes, reverse=True)
    fewer_stages = max(rank_weight_bytes(LLAMA_405B, quantization, "bfloat16", 4, 1, "1.3.0rc3"))
    assert max(rank_weight_bytes(LLAMA_405B, quantization, "bfloat16", 4, pp, "1.3.0rc3")) <= fewer_stages
