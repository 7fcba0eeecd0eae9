"""How stored weights are quantised, and whether that is what the spec asks for."""

import dataclasses

import pytest

from trt_spec.plan.model_files import ModelFiles
from trt_spec.plan.source_quantization import judge_source_quantization, resolve_source_quantization


@pytest.mark.parametrize(
    ("quantization", "config", "stored"),
    [
        ({}, {}, "none"),
        ({"quantization": {"quant_algo": "FP8", "kv_cache_quant_algo": None}}, {}, "FP8"),
        ({"quantization": {"quant_algo": None, "kv_cache_quant_algo": "FP8"}}, {}, "none"),
        ({}, {"quantization_config": {"quant_method": "modelopt", "quant_algo": "FP8"}}, "FP8"),
        ({}, {"quantization_config": {"quant_method": "fbgemm_fp8"}}, "FP8_PER_CHANNEL_PER_TOKEN"),
        ({}, {"quantization_config": {"quant_method": "awq", "bits": 4}}, "AWQ"),
        ({}, {"quantization_config": {}}, "UNKNOWN"),
        ({"quantization": "torn"}, {"quantization_config": None}, "none"),
    ],
)
def test_what_the_files_say(quantization, config, stored):
    assert resolve_source_quantization(ModelFiles("m", "o", config, quantization=quantization)) == stored


@pytest.mark.parametrize(
    ("stored", "asked", "remedy"),
    [
        ("none", "none", None),
        ("none", "fp8", None),
        ("none", "fp8_rowwise", None),
        ("FP8", "fp8", None),
        ("FP8_PER_CHANNEL_PER_TOKEN", "fp8_rowwise", None),
        ("FP8", "none", "Set target.quantization to fp8"),
        ("FP8", "fp8_rowwise", "Set target.quantization to fp8"),
        ("FP8_PER_CHANNEL_PER_TOKEN", "fp8", "Set target.quantization to fp8_rowwise"),
        ("NVFP4", "fp8", "Name the unquantised model"),
    ],
)
def test_stored_against_asked(plan_preset, stored, asked, remedy):
    change = {"quantization": asked, "kv_cache_dtype": "fp8" if asked == "fp8" else "auto"}
    planned = plan_preset("llama-3.1-70b-h200x1", changes={"target": change})
    target = dataclasses.replace(planned.files["target"], quantization={"quantization": {"quant_algo": stored}})
    if stored == "none":
        target = dataclasses.replace(target, quantization={})
    findings = judge_source_quantization(planned.spec, {**planned.files, "target": target})
    assert [finding.remedy.startswith(remedy or "") for finding in findings] == ([True] if remedy else [])
    assert all((f.code, f.severity, f.role) == ("source-quantization", "refuse", "target") for f in findings)
