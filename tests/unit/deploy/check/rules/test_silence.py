"""Rules say nothing of sound repositories, and fall over no repository at all."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from trt_spec.deploy.check.load import load_repository
from trt_spec.deploy.check.rules import RULES
from trt_spec.deploy.check.view import CheckOptions
from trt_spec.deploy.dialect import RECORDED_VERSIONS
from trt_spec.deploy.pbtxt import ModelConfig, render_pbtxt

Make = Callable[..., Any]


@pytest.mark.parametrize("version", [*RECORDED_VERSIONS, "1.2.1"])
def test_nothing_about_our_own(ours: Make, version: str) -> None:
    repository = ours(version)
    repository.options = replace(repository.options, concurrency=64, visible_gpus=8, compute_capability="9.0")
    assert repository.findings() == []


def test_nothing_about_our_own_with_onnx_engines(ours: Make) -> None:
    repository = ours()
    for role in ("target", "draft"):
        config = json.loads((repository.engines / role / "config.json").read_text())
        config["version"] = "onnx-1.23.2"
        config["build_config"] |= {"kv_cache_type": "continuous"}
        del config["build_config"]["plugin_config"]
        (repository.engines / role / "config.json").write_text(json.dumps(config))
        (repository.engines / role / "rank0.engine").unlink()
    assert repository.findings() == []


@pytest.mark.parametrize("version", RECORDED_VERSIONS)
def test_of_nvidias_readme_only_what_the_cases_call_faults(theirs: Make, version: str) -> None:
    """One instance (B010), an unbounded queue (B106), batches that the BLS refuses when it speculates (B009)."""
    findings = theirs(version).findings()
    assert sorted((finding.code, finding.file.partition("/")[0]) for finding in findings) == [
        ("bls-batch", "tensorrt_llm_bls"),
        ("instance-count", "postprocessing"),
        ("instance-count", "preprocessing"),
        ("instance-count", "tensorrt_llm_bls"),
        ("queue-unbounded", "tensorrt_llm"),
        ("queue-unbounded", "tensorrt_llm_draft"),
    ]
    assert {finding.severity for finding in findings} == {"warning"}
    assert all(finding.line for finding in findings)


def test_nothing_of_the_engines_where_they_are_not_here(ours: Make) -> None:
    repository = ours()
    for model in ("tensorrt_llm", "tensorrt_llm_draft"):
        repository.set(model, gpt_model_path=f"/models/engines/{model}")
    assert repository.findings() == []


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
KEYS = ("gpt_model_type", "participant_ids", "gpu_device_ids", "max_attention_window_size", "enable_kv_cache_reuse",
        "max_tokens_in_paged_kv_cache", "kv_cache_free_gpu_mem_fraction", "max_beam_width", "cross_kv_cache_fraction",
        "speculative_decoding_fast_logits", "num_nodes")  # fmt: skip
VALUES = st.text(max_size=8) | st.sampled_from(["true", "1,2;3", "0", "-1", ";", ",", "1e999", "nan", "9" * 5000, "٣"])


@pytest.fixture
def repository(theirs: Make) -> Any:
    """One for all examples of a test: each of them writes what it changes anew."""
    return theirs()


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_no_rule_falls_over_foreign_values(repository: Any, data: st.DataObject) -> None:
    changed = data.draw(st.dictionaries(st.sampled_from(KEYS), VALUES, max_size=4))
    sections = ("version", "pretrained_config", "build_config")
    config = data.draw(st.dictionaries(st.sampled_from(sections), JSON))
    inner = data.draw(
        st.dictionaries(
            st.sampled_from(
                [
                    "max_batch_size",
                    "max_seq_len",
                    "max_draft_len",
                    "plugin_config",
                    "kv_cache_type",
                    "speculative_decoding_mode",
                    "max_beam_width",
                ]
            ),
            JSON,
        )
    )
    mapping = data.draw(st.dictionaries(st.sampled_from(["tp_size", "pp_size", "cp_size"]), JSON))
    document = {"build_config": inner, "pretrained_config": {"mapping": mapping, "logits_dtype": "x"}, **config}
    (repository.engines / "target" / "config.json").write_text(json.dumps(document))
    files = data.draw(st.dictionaries(st.text(max_size=5), JSON, max_size=3) | JSON)
    (repository.engines / "target" / "manifest.json").write_text(json.dumps({"files": files, "gpus": files}))
    view, _ = load_repository(repository.root, replace(repository.options, visible_gpus=1, compute_capability="9.0"))
    model = view.models["tensorrt_llm"]
    assert model.config is not None
    broken = replace(model, config=replace(model.config, parameters={**model.config.parameters, **changed}))
    view = replace(view, models={**view.models, "tensorrt_llm": broken})
    for rule in RULES:
        for finding in rule(view):
            assert finding.what and finding.remedy
            json.dumps(vars(finding), default=vars)


def test_rules_take_models_that_did_not_parse(ours: Make) -> None:
    repository = ours()
    for model in ("tensorrt_llm", "ensemble"):
        (repository.root / model / "config.pbtxt").write_text("max_batch_size: ${x}")
    view, unread = load_repository(repository.root, repository.options)
    assert unread
    assert isinstance([finding for rule in RULES for finding in rule(view)], list)


def test_an_empty_repository_has_nothing_to_say(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    text = render_pbtxt(ModelConfig("other", "python", 0, (), ()))
    (tmp_path / "other" / "config.pbtxt").write_text(text)
    view, _ = load_repository(tmp_path, CheckOptions())
    assert [finding for rule in RULES for finding in rule(view)] == []
