"""Known failures that version profiles and command lines of trtllm-build prevent, named after the id of their row.

Rows shared with other parts (B057, B058, B063) are tested here as far as the command line goes.
"""

import dataclasses
from pathlib import Path

import pytest
import yaml

from trt_spec.errors import SpecError
from trt_spec.plan.build_flags import judge_build_flags
from trt_spec.plan.facts import resolve_facts
from trt_spec.plan.known_models import load_known_model
from trt_spec.plan.limits import resolve_limits
from trt_spec.plan.toolchain import load_profile
from trt_spec.plan.trtllm_argv import build_argv
from trt_spec.spec.model import Spec
from trt_spec.spec.presets import load_preset

ROLES = ("target", "draft")


def make_spec(version: str = "1.2.1", **changes: dict) -> Spec:
    values = yaml.safe_load(load_preset("llama-3.1-70b-h200x1").text)
    for key, change in changes.items():
        values[key] = {**(values.get(key) or {}), **change}
    return Spec.model_validate({**values, "tensorrt_llm": version})


def engine_argv(spec: Spec, role: str, files=None) -> tuple[str, ...]:
    files = files or load_known_model(spec.models()[role].model)
    facts, profile = resolve_facts(files.config, source=role), load_profile(spec.tensorrt_llm)
    limits, _ = resolve_limits(spec, role, facts, profile, files)
    return build_argv(spec, role, limits, facts, profile, Path("/c"), Path("/e"))


@pytest.mark.parametrize("version", ["0.17.0", "1.2.1"])
@pytest.mark.parametrize("accept", ["logits", "fast_logits"])
def test_b058_acceptance_by_logits_gathers_them_in_both_engines(version, accept):
    spec = make_spec(version, speculation={"accept": accept})
    assert all("--gather_generation_logits" in engine_argv(spec, role) for role in ROLES)


def test_b058_acceptance_by_tokens_gathers_none():
    assert not any("--gather_generation_logits" in engine_argv(make_spec(), role) for role in ROLES)


def test_b058_the_flag_cannot_be_set_for_one_engine_alone():
    spec = make_spec(build_flags={"draft": {"gather_generation_logits": True}})
    (finding,) = judge_build_flags(spec, "draft", load_profile("1.2.1"))
    assert (finding.severity, finding.role) == ("refuse", "draft")
    assert "speculation.accept" in finding.remedy


@pytest.mark.parametrize("version", ["0.17.0", "1.2.1"])
def test_b057_fp8_context_fmha_needs_an_fp8_cache_with_scales(version):
    spec = make_spec(version)
    files = load_known_model(spec.target.model)
    no_scales = {"quantization": {"quant_algo": "FP8", "kv_cache_quant_algo": None}}

    def use_fp8(spec, files):
        argv = engine_argv(spec, "target", files)
        return argv[argv.index("--use_fp8_context_fmha") + 1]

    assert use_fp8(spec, files) == "enable"
    assert use_fp8(spec, dataclasses.replace(files, quantization=no_scales)) == "disable"
    assert use_fp8(make_spec(version, target={"kv_cache_dtype": "auto"}), files) == "disable"


def test_b057_the_flag_cannot_be_forced():
    spec = make_spec(target={"kv_cache_dtype": "auto"}, build_flags={"target": {"use_fp8_context_fmha": "enable"}})
    (finding,) = judge_build_flags(spec, "target", load_profile("1.2.1"))
    assert finding.severity == "refuse"
    assert "target.kv_cache_dtype" in finding.remedy


@pytest.mark.parametrize("version", ["0.17.0", "1.2.1"])
def test_b063_lengths_become_max_seq_len_and_never_max_output_len(version):
    spec = make_spec(version, limits={"max_input_len": 2048, "max_output_len": 512})
    argv = engine_argv(spec, "target")
    assert argv[argv.index("--max_input_len") + 1] == "2048"
    assert argv[argv.index("--max_seq_len") + 1] == "2570"
    assert "--max_output_len" not in argv


def test_b063_max_output_len_as_a_build_flag_names_the_field():
    spec = make_spec(build_flags={"target": {"max_output_len": 512}})
    (finding,) = judge_build_flags(spec, "target", load_profile("1.2.1"))
    assert finding.remedy == "Set limits.max_output_len."


@pytest.mark.parametrize("version", ["0.7.1", "0.10.0", "0.14.0", "0.15.0", "0.16.0"])
def test_b066_versions_without_reliable_reuse_are_refused(version):
    with pytest.raises(SpecError, match="draft-target with KV cache reuse is supported from") as error:
        load_profile(version)
    assert "the three profiles: 0.17.0, 0.18.2 or 1.2.1" in error.value.remedy
