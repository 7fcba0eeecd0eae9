"""The escape hatch: build_flags against the version's record, and against what trtspec decides."""

import pytest

from trt_spec.plan.build_flags import DERIVED, judge_build_flags
from trt_spec.plan.toolchain import load_profile
from trt_spec.spec.rules import SUPPORTED_TENSORRT_LLM

PRESET = "llama-3.1-405b-h200x4"


@pytest.fixture
def judge(plan_preset):
    def judge_flag(name: str, value: object, version: str = "1.2.1", role: str = "target"):
        spec = plan_preset(PRESET, version, {"build_flags": {role: {name: value}}}).spec
        return judge_build_flags(spec, role, load_profile(version))

    return judge_flag


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("gemm_plugin", "fp8"),
        ("low_latency_gemm_plugin", "fp8"),
        ("multiple_profiles", True),
        ("multiple_profiles", "enable"),
        ("use_fused_mlp", False),
        ("monitor_memory", True),
        ("fast_build", False),
        ("workers", 2),
        ("opt_num_tokens", "88"),
        ("lora_target_modules", "attn_q attn_k"),
    ],
)
def test_what_a_version_takes(judge, name, value):
    assert judge(name, value) == ()


def test_the_other_role_is_not_judged(plan_preset):
    planned = plan_preset(PRESET, changes={"build_flags": {"draft": {"nonsense": 1}}})
    assert judge_build_flags(planned.spec, "target", planned.profile) == ()
    assert len(judge_build_flags(planned.spec, "draft", planned.profile)) == 1


def test_an_unknown_flag_is_named_with_a_suggestion(judge):
    (finding,) = judge("gem_plugin", "fp8")
    assert (finding.code, finding.severity, finding.role) == ("build-flag-unknown", "refuse", "target")
    assert (
        finding.message == "build_flags.target.gem_plugin: trtllm-build of TensorRT-LLM 1.2.1 has no flag --gem_plugin."
    )
    assert finding.remedy == "Did you mean gemm_plugin?"


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("gemm_plugin", "bf16", "expects one of auto, float16, float32, bfloat16, int32, fp8, nvfp4, disable"),
        ("gemm_plugin", True, "expects one of auto, float16"),
        ("opt_num_tokens", 8.5, "expects a whole number, found '8.5'"),
        ("opt_num_tokens", True, "expects a whole number, found true"),
        ("multiple_profiles", "yes", "expects one of enable, disable, found 'yes'"),
        ("multiple_profiles", 1, "expects one of enable, disable, found '1'"),
        ("monitor_memory", "enable", "is a switch and expects true or false, found 'enable'"),
        ("lora_target_modules", "attn_q nothing", "found 'nothing'"),
    ],
)
def test_a_wrong_value(judge, name, value, expected):
    (finding,) = judge(name, value)
    assert finding.code == "build-flag-value"
    assert finding.message.startswith(f"build_flags.target.{name} of TensorRT-LLM 1.2.1 ")
    assert expected in finding.message


def test_a_value_that_only_a_newer_version_takes(judge):
    assert judge("gemm_plugin", "nvfp4", "1.2.1") == ()
    assert [finding.code for finding in judge("gemm_plugin", "nvfp4", "0.17.0")] == ["build-flag-value"]


@pytest.mark.parametrize(
    ("name", "value", "field"),
    [
        ("max_batch_size", 4, "limits.max_batch_size"),
        ("max_input_len", 4, "limits.max_input_len"),
        ("max_seq_len", 4096, "limits.max_input_len and limits.max_output_len"),
        ("max_decoder_seq_len", 4096, "limits.max_input_len and limits.max_output_len"),
        ("max_output_len", 512, "limits.max_output_len"),
        ("max_draft_len", 5, "speculation.max_draft_len"),
        ("speculative_decoding_mode", "medusa", "speculation.mode"),
        ("gather_generation_logits", True, "speculation.accept"),
        ("use_fp8_context_fmha", "enable", "target.kv_cache_dtype"),
        ("tp_size", 8, "target.tensor_parallel"),
        ("auto_parallel", 4, "target.tensor_parallel"),
        ("use_paged_context_fmha", "disable", "KV cache block reuse"),
        ("kv_cache_type", "continuous", "KV cache block reuse"),
        ("output_dir", "/tmp", "workspace"),
    ],
)
def test_a_flag_that_trtspec_decides_names_what_to_set_instead(judge, name, value, field):
    (finding,) = judge(name, value)
    assert (finding.code, finding.severity) == ("build-flag-derived", "refuse")
    assert field in finding.remedy


def test_decided_flags_exist_in_some_version_or_did_in_older_ones():
    recorded = {dest for version in SUPPORTED_TENSORRT_LLM for dest in load_profile(version).flags}
    assert DERIVED.keys() - recorded == {"max_output_len", "tp_size", "pp_size"}
