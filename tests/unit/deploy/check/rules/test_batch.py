from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from trt_spec.deploy.pbtxt import DynamicBatching

Make = Callable[..., Any]


def test_b082_more_than_the_engine_was_built_for(ours: Make) -> None:
    repository = ours()
    repository.set_engine("target", "build_config", max_batch_size=4)
    repository.set_engine("draft", "build_config", max_batch_size=4)
    repository.change("tensorrt_llm", dynamic_batching=DynamicBatching((8,)))
    repository.change("tensorrt_llm_draft", max_batch_size=4, dynamic_batching=DynamicBatching((4,)))
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


@pytest.mark.parametrize(
    ("sizes", "wrong", "remedy"),
    [
        ((2, 16), "16", "[ 2, 8 ]"),
        ((16, 2), "16", "[ 2, 8 ]"),
        ((16, 32), "16, 32", "[ 8 ]"),
        ((0,), "0", "[ 8 ]"),
        ((-4, 4), "-4", "[ 4, 8 ]"),
    ],
)
def test_preferred_sizes_are_mended_where_there_is_one_answer(
    ours: Make, sizes: tuple[int, ...], wrong: str, remedy: str
) -> None:
    repository = ours()
    repository.change("tensorrt_llm", dynamic_batching=DynamicBatching(sizes))
    file = repository.file("tensorrt_llm")
    rows = "".join(f"  preferred_batch_size: {size}\n" for size in sizes)
    assert rows in file.read_text()
    file.write_text(file.read_text().replace(rows, f"  preferred_batch_size: [ {', '.join(map(str, sizes))} ]\n"))
    finding = repository.find("batch-preferred")
    assert f"preferred_batch_size is {wrong}, the largest batch 8" in finding.what
    assert remedy in finding.remedy
    assert (finding.fix is not None) == (len(sizes) == 1)
    if finding.fix is not None:
        assert finding.fix.after == "  preferred_batch_size: [ 8 ]"


def test_b082_a_draft_engine_smaller_than_the_targets(ours: Make) -> None:
    repository = ours()
    repository.set_engine("draft", "build_config", max_batch_size=4)
    repository.change("tensorrt_llm_draft", max_batch_size=4, dynamic_batching=DynamicBatching((4,)))
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
        repository.change(model, max_batch_size=2, dynamic_batching=DynamicBatching((2,)))
    assert repository.findings() == []
