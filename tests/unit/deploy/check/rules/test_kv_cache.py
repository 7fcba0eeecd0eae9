from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

Make = Callable[..., Any]


@pytest.mark.parametrize("role", ["target", "draft"])
@pytest.mark.parametrize(
    ("section", "key", "value"),
    [
        ("plugin_config", "use_paged_context_fmha", False),
        ("plugin_config", "remove_input_padding", False),
        ("plugin_config", "paged_kv_cache", False),
        (None, "kv_cache_type", "CONTINUOUS"),
    ],
)
def test_b054_engines_that_cannot_reuse_blocks(
    theirs: Make, role: str, section: str | None, key: str, value: object
) -> None:
    repository = theirs()
    names = ("build_config", section) if section else ("build_config",)
    repository.set_engine(role, *names, **{key: value})
    finding = repository.find("kv-reuse-engine")
    model = "tensorrt_llm" if role == "target" else "tensorrt_llm_draft"
    assert (finding.severity, finding.file) == ("error", f"{model}/config.pbtxt")
    assert f"{model}: its engine was built with {key} {value}" in finding.what
    assert str(repository.engines / role) in repository.line(finding)


def test_b054_older_engines_say_paged_in_capitals(theirs: Make) -> None:
    repository = theirs()
    before = repository.findings()
    repository.set_engine("draft", "build_config", kv_cache_type="PAGED")
    repository.set_engine("draft", "build_config", "plugin_config", paged_kv_cache=True)
    assert repository.findings() == before


@pytest.mark.parametrize(("model", "severity"), [("tensorrt_llm", "error"), ("tensorrt_llm_draft", "warning")])
def test_b054_reuse_switched_off(theirs: Make, model: str, severity: str) -> None:
    repository = theirs()
    repository.set(model, enable_kv_cache_reuse="False")
    finding = repository.find("kv-reuse-off")
    assert (finding.severity, finding.file) == (severity, f"{model}/config.pbtxt")
    assert "False" in finding.what
    assert "acceptance loop will recompute the prompt each step" in finding.why
    assert ("the target refuses to load" in finding.why) == (model == "tensorrt_llm")
    repository.apply(finding)
    assert repository.config(model).parameters["enable_kv_cache_reuse"] == "true"


@pytest.mark.parametrize("value", [None, "", "${enable_kv_cache_reuse}", "yes"])
def test_b054_reuse_unset_is_off(theirs: Make, value: str | None) -> None:
    repository = theirs()
    repository.set("tensorrt_llm", enable_kv_cache_reuse=value)
    assert "not set, which means false" in repository.find("kv-reuse-off").what or value == "yes"


def test_a_single_engine_needs_no_reuse_but_one_that_can_if_it_is_on(ours: Make) -> None:
    repository = ours(draft=None, max_draft_len=0)
    repository.set_engine("target", "build_config", max_draft_len=0, speculative_decoding_mode=1)
    repository.set_engine("target", "build_config", "plugin_config", use_paged_context_fmha=False)
    repository.find("kv-reuse-engine")
    repository.set("tensorrt_llm", enable_kv_cache_reuse="false")
    assert repository.findings() == []


def test_blocks_that_are_not_onboarded(ours: Make) -> None:
    repository = ours()
    repository.set("tensorrt_llm", kv_cache_onboard_blocks="false")
    repository.apply(repository.find("kv-onboarding"))
    assert repository.findings() == []


def test_a_pool_smaller_than_one_sequence(ours: Make) -> None:
    repository = ours()
    repository.set("tensorrt_llm_draft", max_tokens_in_paged_kv_cache="128")
    finding = repository.find("kv-pool-too-small")
    assert finding.severity == "error"
    assert "is 128, one sequence takes 160 (blocks of 32)" in finding.what
    repository.set("tensorrt_llm_draft", max_tokens_in_paged_kv_cache="160")
    for orchestrator in ("tensorrt_llm_bls", "ensemble"):
        repository.set(orchestrator, max_inflight_tokens_draft="160")
    assert repository.findings() == []


def test_the_readmes_demo_values_with_longer_engines(theirs: Make) -> None:
    repository = theirs()
    for role in ("target", "draft"):
        repository.set_engine(role, "build_config", max_seq_len=4800)
    windows = [finding for finding in repository.findings() if finding.code == "kv-window"]
    assert [finding.file.partition("/")[0] for finding in windows] == ["tensorrt_llm", "tensorrt_llm_draft"]
    assert "max_attention_window_size is 2560, its engine takes sequences of 4800 tokens" in windows[0].what
    assert "ends block reuse" in windows[0].why
    for model in ("tensorrt_llm", "tensorrt_llm_draft"):
        repository.set(model, max_attention_window_size="")
    pools = [finding for finding in repository.findings() if finding.code == "kv-pool-too-small"]
    assert ["is 2560, one sequence takes 4800" in finding.what for finding in pools] == [True, True]


def test_a_share_for_cross_attention_without_an_encoder(ours: Make) -> None:
    repository = ours()
    repository.set("tensorrt_llm", cross_kv_cache_fraction="0.5")
    assert "cross_kv_cache_fraction is 0.5" in repository.find("kv-cross-fraction").what


def test_fractions_on_shared_gpus(theirs: Make) -> None:
    repository = theirs()
    repository.set("tensorrt_llm", max_tokens_in_paged_kv_cache="")
    finding = repository.find("kv-shared-fraction")
    assert finding.severity == "warning"
    assert "kv_cache_free_gpu_mem_fraction is 0.5, on GPUs shared with tensorrt_llm_draft" in finding.what
    assert "depend on the order" in finding.why
    repository.set("tensorrt_llm", kv_cache_free_gpu_mem_fraction=None)
    assert "takes 0.9 of what is free" in repository.find("kv-shared-fraction").what
    repository.set("tensorrt_llm", gpu_device_ids="1")
    assert "kv-shared-fraction" not in {finding.code for finding in repository.findings()}


def test_models_without_device_ids_may_share_any_gpu(ours: Make) -> None:
    repository = ours()
    for model in ("tensorrt_llm", "tensorrt_llm_draft"):
        repository.set(model, max_tokens_in_paged_kv_cache="")
    repository.set("tensorrt_llm", gpu_device_ids="")
    repository.options = replace(repository.options, visible_gpus=2)
    assert [finding.code for finding in repository.findings()] == ["kv-shared-fraction"] * 2
