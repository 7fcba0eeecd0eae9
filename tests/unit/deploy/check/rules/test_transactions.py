from __future__ import annotations

import shutil
from collections.abc import Callable
from typing import Any

import pytest

Make = Callable[..., Any]


@pytest.mark.parametrize("model", ["tensorrt_llm", "tensorrt_llm_draft"])
def test_b083_engines_are_not_decoupled(ours: Make, model: str) -> None:
    repository = ours()
    repository.change(model, decoupled=True)
    finding = repository.find("engine-decoupled")
    assert (finding.severity, finding.file) == ("error", f"{model}/config.pbtxt")
    assert "decoupled: true" in repository.line(finding)
    repository.apply(finding)
    assert repository.findings() == []


def test_b083_nvidias_bls_does_not_stream_with_a_draft(theirs: Make) -> None:
    repository = theirs()
    repository.change("tensorrt_llm_bls", decoupled=True)
    finding = repository.find("bls-streams")
    assert (finding.severity, finding.file) == ("error", "tensorrt_llm_bls/config.pbtxt")
    assert "refuses to stream with speculation" in finding.why
    repository.apply(finding)
    assert not repository.config("tensorrt_llm_bls").decoupled


@pytest.mark.parametrize("draft", ["", "${tensorrt_llm_draft_model_name}"])
def test_b083_without_a_draft_everything_may_stream(theirs: Make, draft: str) -> None:
    repository = theirs()
    repository.set("tensorrt_llm_bls", tensorrt_llm_draft_model_name=draft)
    shutil.rmtree(repository.root / "tensorrt_llm_draft")
    for model in ("tensorrt_llm", "tensorrt_llm_bls"):
        repository.change(model, decoupled=True)
    faults = {finding.code for finding in repository.findings() if finding.severity != "note"}
    assert faults == {"instance-count", "queue-unbounded"}
    repository.change("tensorrt_llm_bls", decoupled=False)  # it then calls the engine for one answer
    assert "tensorrt_llm_bls awaits one answer" in repository.find("engine-decoupled").what


def test_b009_nvidias_bls_takes_one_prompt_a_request(theirs: Make) -> None:
    repository = theirs()
    finding = repository.find("bls-batch")
    assert finding.severity == "note"  # a repository filled as the README says has it, too
    assert "max_batch_size is 8" in finding.what
    assert "more than one prompt" in finding.why
    repository.change("tensorrt_llm_bls", max_batch_size=1)
    assert "bls-batch" not in {finding.code for finding in repository.findings()}


@pytest.mark.parametrize(("model", "wanted"), [("tensorrt_llm_bls", False), ("ensemble", True)])
def test_b083_ours_come_in_both_kinds(ours: Make, model: str, wanted: bool) -> None:
    repository = ours()
    repository.change(model, decoupled=not wanted)
    finding = repository.find("orchestrator-decoupled")
    assert f"expected {str(wanted).lower()}" in finding.what
    if not wanted:  # protobuf does not write false, so there is no line to correct
        repository.apply(finding)
        assert repository.findings() == []


def test_b083_our_orchestrator_awaits_one_answer_of_a_single_engine_too(ours: Make) -> None:
    repository = ours(draft=None, max_draft_len=0)
    repository.change("tensorrt_llm", decoupled=True)
    repository.find("engine-decoupled")
