"""Single flags of the command lines, where something must hold whatever the spec."""

import dataclasses
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trt_spec.plan.trtllm_argv import build_argv
from trt_spec.plan.trtllm_flags import judge_flags
from trt_spec.spec.rules import SUPPORTED_TENSORRT_LLM

PRESET = "llama-3.1-405b-h200x4"
COUNTS = st.integers(1, 2**24)


def value_of(argv, flag: str) -> str:
    assert argv.count(flag) == 1
    return argv[argv.index(flag) + 1]


@pytest.mark.parametrize("version", SUPPORTED_TENSORRT_LLM)
def test_both_engines_can_reuse_the_kv_cache(plan_preset, version):
    for role in ("draft", "target"):
        argv = plan_preset(PRESET, version).argv()[f"engine-{role}"]
        assert value_of(argv, "--kv_cache_type") == "paged"
        assert value_of(argv, "--use_paged_context_fmha") == "enable"
        assert value_of(argv, "--context_fmha") == "enable"
        assert value_of(argv, "--remove_input_padding") == "enable"
        assert value_of(argv, "--max_beam_width") == "1"


def test_only_the_target_verifies(plan_preset):
    lines = plan_preset(PRESET).argv()
    assert value_of(lines["engine-target"], "--speculative_decoding_mode") == "draft_tokens_external"
    assert value_of(lines["engine-target"], "--max_draft_len") == "10"
    assert not {"--speculative_decoding_mode", "--max_draft_len"} & set(lines["engine-draft"])


@pytest.mark.parametrize(
    ("target", "plugin"),
    [
        ({}, "disable"),
        ({"model": "meta-llama/Llama-3.1-70B-Instruct", "quantization": "none", "kv_cache_dtype": "auto"}, "bfloat16"),
        (
            {
                "model": "meta-llama/Llama-3.1-70B-Instruct",
                "quantization": "none",
                "kv_cache_dtype": "auto",
                "dtype": "float16",
            },
            "float16",
        ),
    ],
)
def test_the_gemm_plugin_follows_the_weights(plan_preset, target, plugin):
    argv = plan_preset("llama-3.1-70b-h200x1", changes={"target": target}).argv()["engine-target"]
    assert value_of(argv, "--gemm_plugin") == plugin


def test_pipeline_ranks_are_split_and_built_too(plan_preset):
    changes = {"target": {"tensor_parallel": 2, "pipeline_parallel": 2}}
    lines = plan_preset(PRESET, changes=changes).argv()
    assert value_of(lines["convert-target"], "--tp") == value_of(lines["convert-target"], "--pp") == "2"
    assert value_of(lines["engine-target"], "--workers") == "4"


def test_workers_are_those_of_one_node(plan_preset):
    changes = {"target": {"tensor_parallel": 8}, "hardware": {"gpus": 4, "nodes": 2}}
    assert value_of(plan_preset(PRESET, changes=changes).argv()["engine-target"], "--workers") == "4"


def test_an_argument_with_spaces_stays_one_word(plan_preset):
    planned = plan_preset(PRESET)
    argv = build_argv(
        planned.spec,
        "draft",
        planned.limits["draft"],
        planned.facts["draft"],
        planned.profile,
        Path("/a b/c"),
        Path("/e"),
    )
    assert value_of(argv, "--checkpoint_dir") == "/a b/c"


@given(
    version=st.sampled_from(SUPPORTED_TENSORRT_LLM),
    role=st.sampled_from(["target", "draft"]),
    counts=st.tuples(*[COUNTS] * 6),
    paged=st.booleans(),
    fp8=st.booleans(),
    gather=st.booleans(),
)
def test_any_limits_give_a_line_that_the_version_takes(plan_preset, version, role, counts, paged, fp8, gather):
    planned = plan_preset(PRESET, version)
    batch, inputs, sequence, tokens, draft, block = counts
    limits = dataclasses.replace(
        planned.limits[role],
        max_batch_size=batch,
        max_input_len=inputs,
        max_seq_len=sequence,
        max_num_tokens=tokens,
        max_draft_len=draft,
        tokens_per_block=block,
        paged_context_fmha=paged,
        fp8_context_fmha=fp8,
        gather_generation_logits=gather,
    )
    argv = build_argv(planned.spec, role, limits, planned.facts[role], planned.profile, Path("/c"), Path("/e"))
    assert judge_flags(argv, planned.profile) == ()
    assert value_of(argv, "--max_seq_len") == str(sequence)
    assert ("--gather_generation_logits" in argv) is gather
    assert value_of(argv, "--use_paged_context_fmha") == ("enable" if paged else "disable")
