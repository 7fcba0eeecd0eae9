from __future__ import annotations

import shutil
from collections.abc import Callable
from typing import Any

import pytest

Make = Callable[..., Any]


def test_b053_a_target_engine_that_takes_no_drafts(theirs: Make) -> None:
    repository = theirs()
    repository.set_engine("target", "build_config", max_draft_len=0)
    finding = repository.find("target-draft-len")
    assert (finding.severity, finding.file) == ("error", "tensorrt_llm/config.pbtxt")
    assert "max_draft_len 0" in finding.what
    assert "expected at least 1" in finding.what
    assert "--max_draft_len" in finding.remedy


@pytest.mark.parametrize(("mode", "shown"), [(1, "1"), (None, "not set"), ("none", "'none'")])
def test_b053_a_target_engine_of_another_mode(theirs: Make, mode: object, shown: str) -> None:
    repository = theirs()
    repository.set_engine("target", "build_config", speculative_decoding_mode=mode)
    finding = repository.find("target-mode")
    assert finding.severity == "error"
    assert f"says speculative_decoding_mode {shown}, expected draft_tokens_external (2)" in finding.what
    assert "--speculative_decoding_mode=draft_tokens_external" in finding.remedy


def test_b053_an_orchestrator_that_drafts_more_than_the_engine_takes(ours: Make) -> None:
    repository = ours()
    repository.set("tensorrt_llm_bls", max_draft_len="5")
    finding = repository.find("orchestrator-over-engine")
    assert (finding.severity, finding.file) == ("error", "tensorrt_llm_bls/config.pbtxt")
    assert "max_draft_len is 5, the engine of tensorrt_llm was built with 4" in finding.what
    assert '"5"' in repository.line(finding)


def test_a_target_alone_needs_no_draft_length(ours: Make) -> None:
    repository = ours(draft=None, max_draft_len=0)
    repository.set_engine("target", "build_config", max_draft_len=0, speculative_decoding_mode=1)
    assert repository.findings() == []


def test_a_client_that_speculates_itself_counts_too(theirs: Make) -> None:
    """NVIDIA's client-side loop calls tensorrt_llm and tensorrt_llm_draft, without a BLS."""
    repository = theirs()
    for name in ("tensorrt_llm_bls", "ensemble"):
        shutil.rmtree(repository.root / name)
    repository.set_engine("target", "build_config", max_draft_len=0)
    repository.find("target-draft-len")


def test_draft_and_target_are_two_engines(ours: Make) -> None:
    repository = ours()
    repository.set("tensorrt_llm_draft", gpt_model_path=str(repository.engines / "target"))
    assert "name the same engine" in repository.find("draft-is-target").what


def test_a_draft_shorter_than_its_target(ours: Make) -> None:
    repository = ours()
    repository.set_engine("draft", "build_config", max_seq_len=149)
    assert "holds sequences of 149 tokens, the target's of 150" in repository.find("draft-too-short").what
    repository.set_engine("draft", "build_config", max_seq_len=150)
    assert repository.findings() == []


@pytest.mark.parametrize(
    ("key", "value", "code", "severity", "right"),
    [
        ("gpt_model_type", "V1", "batching-strategy", "error", "inflight_fused_batching"),
        ("max_beam_width", "2", "beam-width", "error", "1"),
        ("exclude_input_in_output", "True", "excludes-input", "error", "false"),
        ("enable_chunked_context", "1", "chunked-target", "warning", "false"),
    ],
)
def test_parameters_that_the_loop_depends_on(
    ours: Make, key: str, value: str, code: str, severity: str, right: str
) -> None:
    repository = ours()
    repository.set("tensorrt_llm", **{key: value})
    finding = repository.find(code)
    assert finding.severity == severity
    assert value.lower() in finding.what.lower() or value == "1"
    assert f'"{value}"' in repository.line(finding)
    repository.apply(finding)
    assert repository.config("tensorrt_llm").parameters[key] == right
    assert repository.findings() == []


def test_without_speculation_these_are_free(ours: Make) -> None:
    repository = ours(draft=None, max_draft_len=0)
    repository.set_engine("target", "build_config", max_beam_width=4)
    changed = {"gpt_model_type": "V1", "max_beam_width": "4", "enable_chunked_context": "true"}
    repository.set("tensorrt_llm", exclude_input_in_output="true", **changed)
    assert repository.findings() == []
    repository.set("tensorrt_llm", max_beam_width="5")
    assert "max_beam_width is 5, its engine was built for 4" in repository.find("beam-width").what


def test_roles_are_those_that_the_bls_names(theirs: Make) -> None:
    repository = theirs()
    for role, model in (("target", "tensorrt_llm"), ("draft", "tensorrt_llm_draft")):
        (repository.root / model).rename(repository.root / f"my_{role}")
        repository.change(f"my_{role}", name=f"my_{role}")
    repository.set("tensorrt_llm_bls", tensorrt_llm_model_name="my_target", tensorrt_llm_draft_model_name="my_draft")
    repository.set_engine("target", "build_config", max_draft_len=0)
    assert repository.find("target-draft-len").file == "my_target/config.pbtxt"
    repository.set("my_target", enable_kv_cache_reuse="false")
    assert repository.find("kv-reuse-off").severity == "error"


def test_a_target_that_nobody_names_is_tensorrt_llm(theirs: Make) -> None:
    """NVIDIA's BLS takes that name where its own parameter is left unset."""
    repository = theirs()
    repository.set("tensorrt_llm_bls", tensorrt_llm_model_name="${tensorrt_llm_model_name}")
    repository.set_engine("target", "build_config", max_draft_len=0)
    assert repository.find("target-draft-len").file == "tensorrt_llm/config.pbtxt"


@pytest.fixture
def misnamed(theirs: Make) -> Any:
    """Both engines have names of their own, and the BLS names a draft that does not exist."""
    repository = theirs()
    for role, model in (("target", "tensorrt_llm"), ("draft", "tensorrt_llm_draft")):
        (repository.root / model).rename(repository.root / f"my_{role}")
        repository.change(f"my_{role}", name=f"my_{role}")
    repository.set("tensorrt_llm_bls", tensorrt_llm_model_name="my_target", tensorrt_llm_draft_model_name="drafts")
    return repository


@pytest.mark.parametrize(
    ("key", "value", "code"),
    [
        ("enable_kv_cache_reuse", "false", "kv-reuse-off"),
        ("exclude_input_in_output", "true", "excludes-input"),
        ("gpt_model_type", "V1", "batching-strategy"),
        ("max_beam_width", "2", "beam-width"),
    ],
)
@pytest.mark.parametrize("target", ["my_target", "targets"])
def test_a_drafts_own_faults_are_told_though_the_bls_misses_it(
    misnamed: Any, key: str, value: str, code: str, target: str
) -> None:
    misnamed.set("tensorrt_llm_bls", tensorrt_llm_model_name=target)
    misnamed.set("my_draft", **{key: value})
    assert misnamed.find(code).file == "my_draft/config.pbtxt"
    assert "tensorrt_llm_bls/config.pbtxt" in {finding.file for finding in misnamed.findings("model-not-found")}


def test_where_one_name_leads_nowhere_the_engine_that_is_left_is_meant(misnamed: Any) -> None:
    misnamed.set_engine("draft", "build_config", max_batch_size=4)
    assert misnamed.find("batch-draft-engine").file == "my_draft/config.pbtxt"
    misnamed.set("tensorrt_llm_bls", tensorrt_llm_model_name="targets", tensorrt_llm_draft_model_name="my_draft")
    misnamed.set_engine("target", "build_config", max_draft_len=0)
    assert misnamed.find("target-draft-len").file == "my_target/config.pbtxt"
