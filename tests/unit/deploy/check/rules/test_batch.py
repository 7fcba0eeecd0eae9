from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from trt_spec.deploy.pbtxt import DynamicBatching

Make = Callable[..., Any]


def test_b082_more_than_the_engine_was_built_for(ours: Make) -> None:
    repository = ours()
    repository.set_engine("target", "build_config", max_batch_size=4)
    repository.set_engine("draft", "build_config", max_batch_size=4)
    repository.change("tensorrt_llm_draft", max_batch_size=4, dynamic_batching=DynamicBatching((4,), 0, 9))
    finding = repository.find("batch-over-engine")
    assert (finding.severity, finding.file) == ("error", "tensorrt_llm/config.pbtxt")
    assert "max_batch_size is 8, its engine was built for 4" in finding.what
    assert repository.line(finding) == "max_batch_size: 8"
    repository.apply(finding)
    preferred = repository.find("batch-preferred")
    assert "preferred_batch_size is 8, the largest batch 4" in preferred.what
    repository.apply(preferred)
    assert repository.config("tensorrt_llm").max_batch_size == 4
    assert repository.config("tensorrt_llm").dynamic_batching.preferred_batch_sizes == (4,)
    assert repository.findings() == []


def test_b082_a_draft_engine_smaller_than_the_targets(ours: Make) -> None:
    repository = ours()
    repository.set_engine("draft", "build_config", max_batch_size=4)
    repository.change("tensorrt_llm_draft", max_batch_size=4, dynamic_batching=DynamicBatching((4,), 0, 9))
    finding = repository.find("batch-draft-engine")
    assert (finding.severity, finding.file) == ("error", "tensorrt_llm_draft/config.pbtxt")
    assert "built for 4 sequences, the target's for 8" in finding.what
    assert str(repository.engines / "draft") in repository.line(finding)
    assert "max_batch_size is 4, tensorrt_llm's is 8" in repository.find("batch-draft").what


@pytest.mark.parametrize(("batch", "severity"), [(16, "error"), (4, "warning")])
def test_one_batch_size_through_an_ensemble(theirs: Make, batch: int, severity: str) -> None:
    repository = theirs()
    repository.change("ensemble", max_batch_size=batch)
    findings = [finding for finding in repository.findings() if finding.code == "batch-ensemble"]
    assert [finding.severity for finding in findings] == [severity] * 3
    assert f"max_batch_size is {batch}, its step postprocessing has 8" in findings[0].what


def test_a_batch_below_the_engines_is_fine(ours: Make) -> None:
    repository = ours()
    for model in ("tensorrt_llm", "tensorrt_llm_draft"):
        batching = replace(repository.config(model).dynamic_batching, preferred_batch_sizes=(2,))
        repository.change(model, max_batch_size=2, dynamic_batching=batching)
    assert repository.findings() == []
