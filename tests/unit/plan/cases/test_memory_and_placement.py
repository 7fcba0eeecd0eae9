"""Known failures that limits, memory and placement must foresee, each test named after the id of its row."""

from dataclasses import replace

import pytest

from trt_spec.errors import SpecError
from trt_spec.plan.activations import logits_bytes
from trt_spec.plan.all_reduce import check_all_reduce, parse_topology
from trt_spec.plan.facts import resolve_facts
from trt_spec.plan.hardware import GIB
from trt_spec.plan.known_models import load_known_model
from trt_spec.plan.kv_cache import (
    SharedEngine,
    check_fractions,
    check_pool,
    kv_bytes_per_token,
    pool_tokens,
    sequence_tokens,
)
from trt_spec.plan.limits import check_limits, granted_output_tokens, resolve_limits
from trt_spec.plan.placement import plan_placement
from trt_spec.plan.precision import check_precision
from trt_spec.plan.toolchain import load_profile
from trt_spec.spec.faults import judge_values

FP8 = {"quantization": "fp8", "kv_cache_dtype": "fp8"}
SMALL = {"limits": {"max_batch_size": 1, "max_input_len": 2048, "max_output_len": 1024}}


def codes(findings, severity=None):
    return {finding.code for finding in findings if severity in (None, finding.severity)}


def of(findings, code):
    return next(finding for finding in findings if finding.code == code)


def test_b005_bytes_of_a_pair_on_one_gpu_are_known_before_it_is_built(make_pair):
    plan = make_pair(gpu_bytes=80 * GIB, **SMALL).plan()
    weights = {engine.role: engine.weights_bytes / GIB for engine in plan.gpus[0].engines}
    # The row counts one byte a parameter (66 and 7.5); embeddings and heads stay 16-bit, so it is a little more.
    assert weights["target"] == pytest.approx(66, abs=2)
    assert weights["draft"] == pytest.approx(7.5, abs=1.2)
    assert plan.fits
    assert plan.pools["target"].max_tokens >= plan.pools["target"].sequence_tokens


def test_b005_a_smaller_gpu_is_refused_with_what_would_do(make_pair):
    plan = make_pair(gpu_bytes=48 * GIB, **SMALL).plan()
    finding = of(plan.findings, "memory-does-not-fit")
    assert not plan.fits
    assert finding.severity == "refuse"
    assert "target weights 67." in finding.message
    assert "use 2 GPUs (target.tensor_parallel 2" in finding.remedy


def test_b019_calibration_needs_the_whole_model_on_the_gpus(make_pair):
    pair = make_pair(
        gpu_bytes=40 * GIB,
        target={"model": "meta-llama/Llama-3.1-70B-Instruct", **FP8},
        hardware={"gpu": "H100", "gpus": 1},
    )
    plan = pair.plan()
    finding = of(plan.findings, "memory-calibration")
    assert finding.severity == "refuse"
    assert "calibration needs ~141 GB across visible GPUs" in finding.message
    assert "1 x 40 GiB" in finding.message
    quantize = next(step for step in plan.steps if step.id == "quantize-target")
    assert quantize.gpu_memory_bytes == pytest.approx(141e9, rel=0.01)


def test_b019_what_needs_no_calibration_is_converted_on_the_cpu(make_pair):
    plan = make_pair(gpu_bytes=40 * GIB).plan()
    assert "memory-calibration" not in codes(plan.findings)
    converts = [step for step in plan.steps if step.kind == "convert"]
    assert [step.gpu_memory_bytes for step in converts] == [0, 0]


SPLIT = {
    "hardware": {"gpu": "H200", "gpus": 2},
    "target": {"model": "nvidia/Llama-3.1-70B-Instruct-FP8", **FP8, "tensor_parallel": 2},
}


@pytest.mark.parametrize("version", ["0.17.0", "0.18.2", "1.2.1"])
def test_b025_no_flag_is_emitted_and_the_load_test_is_named(make_pair, version):
    pair = make_pair(version=version, limits={"max_batch_size": 6, "max_input_len": 4096}, **SPLIT)
    profile = load_profile(version)
    assert profile.find_flag("--use_custom_all_reduce") is None
    (finding,) = check_all_reduce(pair.spec, plan_placement(pair.spec)[0], profile)
    assert (finding.code, finding.role) == ("all-reduce-automatic", "target")
    assert "falls back to NCCL" in finding.message
    assert "6 requests at a time" in finding.remedy
    assert "4095 tokens" in finding.remedy


TOPOLOGY = """\
\t\x1b[4mGPU0\tGPU1\tNIC0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\x1b[0m
GPU0\t X \t{link}\tSYS\t0-31\t0\tN/A
GPU1\t{link}\t X \tSYS\t0-31\t0\tN/A
NIC0\tSYS\tSYS\t X

Legend:

  X    = Self
"""


def test_b026_gpus_without_nvlink_fall_back_to_nccl_and_the_plan_says_so(make_pair):
    spec, profile = make_pair(**SPLIT).spec, load_profile("1.2.1")
    placement, _ = plan_placement(spec)
    links = parse_topology(TOPOLOGY.format(link="PHB"))
    assert links == {(0, 1): "PHB"}
    finding = of(check_all_reduce(spec, placement, profile, links), "all-reduce-without-nvlink")
    assert finding.severity == "warn"
    assert "GPUs 0 and 1 are linked by PHB" in finding.message
    assert "NCCL" in finding.message


def test_b026_nvlink_needs_no_warning(make_pair):
    spec = make_pair(**SPLIT).spec
    links = parse_topology(TOPOLOGY.format(link="NV12"))
    found = check_all_reduce(spec, plan_placement(spec)[0], load_profile("1.2.1"), links)
    assert codes(found) == {"all-reduce-automatic"}


def test_b055_an_int8_kv_cache_is_refused_with_the_reason():
    model = {"model": "a/b", "quantization": "fp8", "kv_cache_dtype": "int8"}
    spec, faults = judge_values(
        {"name": "x", "backend": "engine", "hardware": {"gpu": "H200", "gpus": 1}, "target": model, "draft": model}
    )
    assert spec is None
    message = next(fault.message for fault in faults if fault.path == ("target", "kv_cache_dtype"))
    assert "expected one of auto, fp8" in message
    assert "needs KV cache reuse" in message


def _without_kv_scales(files):
    return replace(files, quantization={"quantization": {"quant_algo": "FP8", "kv_cache_quant_algo": None}})


def test_b057_an_fp8_cache_without_scales_is_refused(make_pair):
    pair = make_pair()
    files = _without_kv_scales(pair.files["target"])
    (finding,) = check_precision(pair.spec, "target", pair.sizing.facts["target"], pair.sizing.gpu, files)
    assert (finding.code, finding.severity) == ("kv-fp8-without-scales", "refuse")
    limits, _ = resolve_limits(pair.spec, "target", pair.sizing.facts["target"], load_profile("1.2.1"), files)
    assert not limits.fp8_context_fmha


@pytest.mark.parametrize(
    ("gpu", "quantization", "kv_cache_dtype", "expected"),
    [
        ("H200", "fp8", "fp8", True),
        ("L40S", "fp8", "fp8", True),
        ("H200", "fp8", "auto", False),
        ("H200", "none", "auto", False),
        ("A100", "none", "auto", False),
    ],
)
def test_b057_fp8_context_attention_only_where_it_works(make_pair, gpu, quantization, kv_cache_dtype, expected):
    precision = {"quantization": quantization, "kv_cache_dtype": kv_cache_dtype}
    pair = make_pair(
        hardware={"gpu": gpu, "gpus": 1},
        target={"model": "meta-llama/Llama-3.1-8B-Instruct", **precision},
        draft={"model": "meta-llama/Llama-3.2-1B-Instruct", **precision},
    )
    assert pair.limits["target"].fp8_context_fmha is expected


def test_b057_fp8_on_an_a100_is_refused(make_pair):
    pair = make_pair(hardware={"gpu": "A100", "gpus": 1})
    found = check_precision(pair.spec, "target", pair.sizing.facts["target"], pair.sizing.gpu, pair.files["target"])
    assert codes(found, "refuse") == {"gpu-without-fp8"}
    assert "A100 has 8.0" in found[0].message


def test_b058_logits_acceptance_needs_gathered_logits_in_each_engine(make_pair):
    pair = make_pair(speculation={"accept": "logits"})
    assert all(limits.gather_generation_logits for limits in pair.limits.values())
    draft = replace(pair.limits["draft"], gather_generation_logits=False)
    finding = of(check_limits(draft, pair.spec), "limit-logits")
    assert (finding.severity, finding.role) == ("refuse", "draft")


def test_b058_token_acceptance_gathers_nothing(make_pair):
    pair = make_pair()
    assert not any(limits.gather_generation_logits for limits in pair.limits.values())
    assert "limit-logits" not in codes(pair.limit_findings)


def test_b059_the_logits_buffer_is_in_the_plan(make_pair):
    pair = make_pair(
        target={"model": "Qwen/Qwen2.5-72B-Instruct"},
        draft={"model": "Qwen/Qwen2.5-7B-Instruct", "quantization": "none", "kv_cache_dtype": "auto"},
        hardware={"gpu": "H200", "gpus": 2},
        speculation={"accept": "logits", "max_draft_len": 10},
        limits={"max_batch_size": 8},
    )
    plan = pair.plan()
    target = next(engine for engine in plan.gpus[0].engines if engine.role == "target")
    assert pair.sizing.facts["target"].vocab_size == 152064
    assert target.logits_bytes == logits_bytes(8, 10, 152064) == 8 * 11 * 152064 * 4
    finding = of(plan.findings, "memory-logits")
    assert finding.severity == "warn"
    assert "53.5 MB" in finding.message
    assert "tokens" in finding.remedy


def _limits_of(max_position: int, make_pair):
    """Limits of a target of that context window, asked for 2000 + 48 tokens with drafts of 10."""
    pair = make_pair(
        limits={"max_batch_size": 1, "max_input_len": 2000, "max_output_len": 48}, speculation={"max_draft_len": 10}
    )
    facts = replace(pair.sizing.facts["target"], max_position_embeddings=max_position)
    return resolve_limits(pair.spec, "target", facts, load_profile("1.2.1"), pair.files["target"])


def test_b061_room_for_the_draft_comes_on_top(make_pair):
    limits, found = _limits_of(131072, make_pair)
    assert limits.max_seq_len == 2058
    assert limits.usable_seq_len == 2048
    assert codes(found) == set()


def test_b061_the_context_window_clamps_it_and_the_usable_rest_is_reported(make_pair):
    limits, found = _limits_of(2048, make_pair)
    assert limits.max_seq_len == 2048
    assert limits.usable_seq_len == 2038
    finding = of(found, "limit-seq-len")
    assert finding.severity == "warn"
    assert "2038 tokens" in finding.message


def test_b061_an_engine_grants_what_prompt_and_draft_leave():
    assert granted_output_tokens(max_seq_len=2048, prompt_tokens=2000, max_draft_len=10) == 38


def _long_target(make_pair, role):
    pair = make_pair(limits={"max_batch_size": 1, "max_input_len": 16000, "max_output_len": 16768})
    return pair.spec, replace(pair.limits[role], max_seq_len=32768, max_num_tokens=8192, usable_seq_len=32768)


@pytest.mark.parametrize("role", ["target", "draft"])
def test_b062_max_num_tokens_bounds_the_input(make_pair, role):
    spec, limits = _long_target(make_pair, role)
    finding = of(check_limits(limits, spec), "limit-input-len")
    assert finding.severity == "refuse"
    assert "up to 8192 tokens" in finding.message
    assert "16000" in finding.message


def test_b062_derived_limits_admit_every_prefix_that_is_resent(make_pair):
    pair = make_pair(limits={"max_batch_size": 1, "max_input_len": 16000, "max_output_len": 16000})
    assert "limit-input-len" not in codes(pair.limit_findings)
    assert all(limits.effective_input_len >= 31999 for limits in pair.limits.values())


@pytest.mark.parametrize("version", ["0.17.0", "1.2.1"])
def test_b063_lengths_become_one_sequence_length(make_pair, version):
    pair = make_pair(
        version=version,
        limits={"max_input_len": 2048, "max_output_len": 512},
        speculation={"max_draft_len": 10},
    )
    assert pair.limits["target"].max_seq_len == 2570
    assert pair.limits["draft"].max_seq_len == 2560
    assert load_profile(version).find_flag("--max_output_len") is None


@pytest.mark.parametrize("version", ["0.7.1", "0.16.0"])
def test_b066_versions_before_working_reuse_are_refused(make_pair, version):
    values = {
        "name": "x", "backend": "engine", "tensorrt_llm": version, "hardware": {"gpu": "H200", "gpus": 1},
        "target": {"model": "a/b"}, "draft": {"model": "a/c"},
    }  # fmt: skip
    spec, faults = judge_values(values)
    assert spec is None
    assert faults[0].path == ("tensorrt_llm",)
    assert "0.17.0, 0.18.2 or 1.2.1" in faults[0].message
    with pytest.raises(SpecError, match="too old: draft-target with KV cache reuse"):
        load_profile(version)


def test_b067_the_scheduler_counts_every_resent_prefix(make_pair):
    pair = make_pair(limits={"max_batch_size": 8, "max_input_len": 22000, "max_output_len": 1000})
    limits = replace(pair.limits["target"], max_num_tokens=20000)
    finding = of(check_limits(limits, pair.spec), "limit-verify-batch")
    assert finding.severity == "warn"
    assert str(8 * (22000 + 1000 + 4 + 1)) in finding.message
    assert "serialise" in finding.message


def test_b067_the_effective_batch_is_in_the_plan(preset_pair):
    limits = preset_pair("llama-3.1-70b-h200x1").limits["target"]
    assert limits.effective_verify_batch == limits.max_num_tokens // (8192 + 2048 + 10 + 1) < 8


def test_b069_a_pool_must_hold_one_sequence():
    facts = resolve_facts(load_known_model("meta-llama/Llama-2-7b-hf").config, source="llama-2")
    per_token = kv_bytes_per_token(facts, "float16", "auto", 1, facts.layers)
    assert per_token == 524288
    assert pool_tokens(1.8e9, 0.2, per_token) == 686
    (finding,) = check_pool(1.8e9, 0.2, per_token, sequence_tokens(2560, 64), "target")
    assert finding.severity == "refuse"
    assert "686 tokens" in finding.message
    assert "2560" in finding.message
    assert "0.75 or more" in finding.remedy
    assert check_pool(1.8e9, 0.75, per_token, sequence_tokens(2560, 64), "target") == ()


@pytest.mark.parametrize(
    ("length", "block", "beams", "expected"), [(2560, 64, 1, 2560), (2561, 64, 1, 2624), (100, 32, 4, 512)]
)
def test_b069_sequences_take_whole_blocks(length, block, beams, expected):
    assert sequence_tokens(length, block, beams) == expected


def test_b070_two_large_fractions_on_one_gpu_are_refused():
    engines = [
        SharedEngine("target", fixed_bytes=66 * GIB, sequence_bytes=GIB, fraction=0.9),
        SharedEngine("draft", fixed_bytes=8 * GIB, sequence_bytes=GIB, fraction=0.9),
    ]
    (finding,) = check_fractions(80 * GIB, engines)
    assert finding.severity == "refuse"
    assert "max_tokens_in_paged_kv_cache" in finding.remedy
    # Whichever is listed first: the order of loading is not the user's choice.
    assert codes(check_fractions(80 * GIB, engines[::-1])) == {"kv-fractions-collide"}


def test_b070_a_missing_fraction_is_warned_about():
    engines = [
        SharedEngine("target", fixed_bytes=20 * GIB, sequence_bytes=GIB, fraction=0.3),
        SharedEngine("draft", fixed_bytes=2 * GIB, sequence_bytes=GIB, fraction=None),
    ]
    assert codes(check_fractions(80 * GIB, engines), "warn") == {"kv-fraction-unset"}


@pytest.mark.parametrize("preset", ["llama-3.1-70b-h200x1", "llama-3.1-405b-h200x4"])
def test_b070_plans_give_both_pools_in_tokens_that_fit(preset_pair, preset):
    plan = preset_pair(preset).plan()
    for gpu in plan.gpus:
        pools = sum(engine.kv_bytes for engine in gpu.engines)
        assert 0 < pools <= 0.95 * (gpu.total_bytes - gpu.fixed_bytes)
        for engine in gpu.engines:
            assert engine.kv_bytes == plan.pools[engine.role].max_tokens * engine.kv_bytes_per_token


def test_b073_unequal_splits_share_an_orchestrator(make_pair):
    spec = make_pair(**SPLIT).spec
    placement, _ = plan_placement(spec)
    assert (placement.mode, placement.world_size) == ("orchestrator-spawned", 1)
    assert not any(placed.participant_ids for placed in placement.roles.values())


def test_b073_fast_logits_start_all_ranks_with_disjoint_ids(make_pair):
    spec = make_pair(speculation={"accept": "fast_logits"}, **SPLIT).spec
    placement, _ = plan_placement(spec)
    assert (placement.mode, placement.world_size) == ("orchestrator-prespawned", 4)
    assert placement.roles["draft"].participant_ids == (1,)
    assert placement.roles["target"].participant_ids == (2, 3)


def test_b087_beams_are_one_in_every_engine(make_pair):
    pair = make_pair()
    assert {limits.max_beam_width for limits in pair.limits.values()} == {1}
    finding = of(check_limits(replace(pair.limits["target"], max_beam_width=4), pair.spec), "limit-beam-width")
    assert finding.severity == "refuse"


def test_b087_a_spec_cannot_ask_for_beams():
    spec, faults = judge_values(
        {"name": "x", "backend": "engine", "hardware": {"gpu": "H200", "gpus": 1}, "target": {"model": "a/b"},
         "draft": {"model": "a/c"}, "speculation": {"beam_width": 2}}
    )  # fmt: skip
    assert spec is None
    assert faults[0].path == ("speculation", "beam_width")


def test_b114_fast_logits_come_with_acceptance_by_logits_only(make_pair):
    by_tokens, _ = plan_placement(make_pair(speculation={"accept": "tokens"}).spec)
    assert not by_tokens.fast_logits
    pair = make_pair(speculation={"accept": "fast_logits"})
    placement, found = plan_placement(pair.spec)
    assert placement.fast_logits
    assert all(limits.gather_generation_logits for limits in pair.limits.values())
    assert of(found, "place-fast-logits").severity == "warn"


def test_b114_a_spec_cannot_have_fast_logits_without_them():
    spec, faults = judge_values(
        {"name": "x", "backend": "engine", "hardware": {"gpu": "H200", "gpus": 1}, "target": {"model": "a/b"},
         "draft": {"model": "a/c"}, "speculation": {"accept": "tokens", "fast_logits": True}}
    )  # fmt: skip
    assert spec is None
    assert "unknown key" in faults[0].message
