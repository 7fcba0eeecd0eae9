from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

Make = Callable[..., Any]


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


@pytest.mark.parametrize(("target", "draft", "severity"), [(1000, 10, "error"), (152064, 151936, "note")])
def test_vocabularies_of_different_size(ours: Make, target: int, draft: int, severity: str) -> None:
    repository = ours()
    repository.set_engine("target", "pretrained_config", vocab_size=target)
    assert repository.findings() == []
    repository.set_engine("draft", "pretrained_config", vocab_size=draft)
    finding = repository.find("draft-vocabulary")
    assert (finding.severity, finding.file) == (severity, "tensorrt_llm_draft/config.pbtxt")
    assert f"vocab_size {draft}, the target's {target}" in finding.what
    repository.set_engine("draft", "pretrained_config", vocab_size=target)
    assert repository.findings() == []
