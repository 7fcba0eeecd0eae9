"""Derived limits of engines, and the checks of given ones."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trt_spec.errors import SpecError
from trt_spec.plan.activations import MAX_TENSOR_ELEMENTS, max_tokens_by_volume
from trt_spec.plan.engine_memory import measure_memory
from trt_spec.plan.hardware import GIB
from trt_spec.plan.limits import check_limits, context_window, granted_output_tokens, resolve_limits
from trt_spec.plan.sizing import balance_limits, plan_sizing
from trt_spec.plan.toolchain import load_profile


def codes(findings):
    return {finding.code for finding in findings}


def test_reuse_and_paged_attention_are_on_for_both_engines(preset_pair):
    limits = preset_pair("llama-3.1-405b-h200x4").limits
    for engine in limits.values():
        assert engine.kv_cache_reuse
        assert engine.paged_context_fmha
        assert engine.fp8_context_fmha
        assert not engine.enable_chunked_context
    assert (limits["target"].max_draft_len, limits["draft"].max_draft_len) == (10, 0)


@pytest.mark.parametrize(("version", "block"), [("0.17.0", 64), ("0.18.2", 64), ("1.2.1", 32)])
def test_blocks_are_those_of_the_version(make_pair, version, block):
    assert {limits.tokens_per_block for limits in make_pair(version=version).limits.values()} == {block}


def test_the_builder_adds_the_draft_once_more(make_pair):
    limits = make_pair(speculation={"max_draft_len": 7}).limits
    assert limits["target"].engine_max_seq_len == limits["target"].max_seq_len + 7
    assert limits["draft"].engine_max_seq_len == limits["draft"].max_seq_len


def test_a_prompt_that_leaves_no_answer_is_refused(make_pair):
    pair = make_pair()
    facts = replace(pair.sizing.facts["target"], max_position_embeddings=2050)
    _, found = resolve_limits(pair.spec, "target", facts, load_profile("1.2.1"))
    refused = next(finding for finding in found if finding.severity == "refuse")
    assert refused.code == "limit-seq-len"
    assert "leaves no answer" in refused.message


def test_linear_scaling_stretches_the_window(make_pair):
    from trt_spec.plan.facts import RopeScaling

    facts = replace(make_pair().sizing.facts["target"], max_position_embeddings=4096, rope_scaling=None)
    assert context_window(facts) == 4096
    assert context_window(replace(facts, rope_scaling=RopeScaling("linear", 2.5))) == 10240
    llama3 = RopeScaling("llama3", 8.0, 1.0, 4.0, 8192)
    assert context_window(replace(facts, rope_scaling=llama3)) == 4096  # its window is in config.json already


@pytest.mark.parametrize("off", ["kv_cache_reuse", "paged_context_fmha"])
def test_an_engine_without_reuse_is_refused(make_pair, off):
    pair = make_pair()
    assert "limit-kv-reuse" in codes(check_limits(replace(pair.limits["draft"], **{off: False}), pair.spec))


def test_chunked_context_is_refused_for_the_target_only(make_pair):
    pair = make_pair()
    chunked = {role: replace(limits, enable_chunked_context=True) for role, limits in pair.limits.items()}
    assert "limit-chunked-context" in codes(check_limits(chunked["target"], pair.spec))
    assert "limit-chunked-context" not in codes(check_limits(chunked["draft"], pair.spec))


def test_without_speculation_nothing_is_said_of_it(make_pair):
    pair = make_pair(draft=None, speculation={"mode": "none"})
    bare = replace(pair.limits["target"], max_beam_width=4, kv_cache_reuse=False, max_num_tokens=4096)
    assert check_limits(bare, pair.spec) == ()


def test_one_sequence_beyond_the_tensor_volume_is_warned_about(make_pair):
    pair = make_pair(limits={"max_batch_size": 1, "max_input_len": 100000, "max_output_len": 8000})
    assert "limit-tensor-volume" in codes(pair.limit_findings)
    assert 2 * 28672 * max_tokens_by_volume(pair.sizing.facts["target"], 1) <= MAX_TENSOR_ELEMENTS


def test_a_spec_without_gpus_has_no_engine_limits(make_pair):
    pair = make_pair()
    spec = pair.spec.model_copy(update={"hardware": None})
    with pytest.raises(SpecError, match="has no figures"):
        resolve_limits(spec, "target", pair.sizing.facts["target"], load_profile("1.2.1"))


@settings(max_examples=60, deadline=None)
@given(batch=st.integers(1, 256), prompt=st.integers(1, 60000), answer=st.integers(1, 20000), draft=st.integers(1, 64))
def test_derived_limits_pass_their_own_checks(make_pair, batch, prompt, answer, draft):
    pair = make_pair(
        limits={"max_batch_size": batch, "max_input_len": prompt, "max_output_len": answer},
        speculation={"max_draft_len": draft},
    )
    for limits in pair.limits.values():
        assert {finding.severity for finding in check_limits(limits, pair.spec)} <= {"warn"}
        assert limits.max_num_tokens >= prompt + answer + limits.max_draft_len
        assert 1 <= limits.effective_verify_batch <= batch
        granted = granted_output_tokens(limits.max_seq_len, prompt, limits.max_draft_len)
        assert granted == answer


def test_the_token_budget_gives_way_to_the_cache(make_pair):
    pair = make_pair(gpu_bytes=82 * GIB, limits={"max_batch_size": 8, "max_input_len": 2048, "max_output_len": 1024})
    assert not measure_memory(pair.sizing).fits
    balanced = balance_limits(pair.sizing)
    pools = measure_memory(balanced).pools
    assert {limits.effective_verify_batch for limits in balanced.limits.values()} == {2}
    assert all(pool.full_sequences >= 2 for pool in pools)
    for limits in balanced.limits.values():
        assert limits.effective_input_len == min(limits.max_seq_len - 1, limits.max_num_tokens)


def test_room_enough_leaves_the_budget_alone(make_pair):
    sizing = make_pair().sizing
    assert balance_limits(sizing) == sizing


def test_sizing_judges_what_it_decided(make_pair):
    pair = make_pair(gpu_bytes=None, hardware={"gpu": "A100"})
    sizing, found = plan_sizing(pair.spec, pair.sizing.facts, load_profile("1.2.1"), pair.files)
    assert {finding.code for finding in found if finding.severity == "refuse"} == {"gpu-without-fp8"}
    assert [finding.role for finding in found if finding.code == "limit-verify-batch"] == ["target", "draft"]
    assert sizing.limits["target"].effective_verify_batch == 1
