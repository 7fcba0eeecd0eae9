from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

Make = Callable[..., Any]
FAST = {"speculative_decoding_fast_logits": "true"}
OUTPUTS = ("context_logits", "generation_logits")


def test_a_type_that_is_not_the_engines(ours: Make) -> None:
    repository = ours()
    repository.set_engine("draft", "pretrained_config", logits_dtype="float16")
    findings = repository.findings()
    assert [finding.code for finding in findings] == ["logits-dtype"] * 3
    assert {finding.file for finding in findings} == {"tensorrt_llm_draft/config.pbtxt"}
    assert "draft_logits is TYPE_FP32, the engine's logits_dtype is float16 (TYPE_FP16)" in findings[0].what
    assert all("data_type: TYPE_FP32" in repository.line(finding) for finding in findings)
    for finding in findings:
        repository.apply(finding)
    assert {finding.code for finding in repository.findings()} == {"logits-dtypes-differ"}


@pytest.mark.parametrize("model", ["tensorrt_llm_draft", "tensorrt_llm_bls", "ensemble"])
def test_all_models_hand_on_one_type(theirs: Make, model: str) -> None:
    repository = theirs()
    repository.retype(model, "FP16", OUTPUTS)
    findings = [finding for finding in repository.findings() if finding.code == "logits-dtypes-differ"]
    assert [finding.file for finding in findings] == [f"{model}/config.pbtxt"] * 2
    assert f"{model}: context_logits is TYPE_FP16, the engine of tensorrt_llm gives TYPE_FP32" in findings[0].what


@pytest.mark.parametrize("makes", ["theirs", "nvidia"])
def test_one_wrong_tensor_of_the_target_is_the_one_to_blame(request: pytest.FixtureRequest, makes: str) -> None:
    repository = request.getfixturevalue(makes)()
    repository.retype("tensorrt_llm", "FP16", ("draft_logits",))
    findings = repository.findings("logits-dtypes-differ")
    assert [finding.file for finding in findings] == ["tensorrt_llm/config.pbtxt"]
    how = "the engine of tensorrt_llm gives TYPE_FP32" if makes == "theirs" else "most are TYPE_FP32"
    assert f"draft_logits is TYPE_FP16, {how}" in findings[0].what


def test_fast_logits_need_ranks_of_their_own(ours: Make) -> None:
    repository = ours()
    for model in ("tensorrt_llm", "tensorrt_llm_draft"):
        repository.set(model, **FAST)
    findings = repository.findings()
    assert [finding.code for finding in findings] == ["fast-logits"] * 2
    assert "without participant_ids" in findings[0].what
    repository.set("tensorrt_llm", participant_ids="2")
    repository.set("tensorrt_llm_draft", participant_ids="1")
    assert repository.findings() == []


def test_fast_logits_on_one_side_only(ours: Make) -> None:
    repository = ours()
    repository.set("tensorrt_llm", participant_ids="2")
    repository.set("tensorrt_llm_draft", participant_ids="1", **FAST)
    assert "tensorrt_llm: speculative_decoding_fast_logits is not true" in repository.find("fast-logits").what


def test_fast_logits_of_engines_that_keep_none(ours: Make) -> None:
    repository = ours()
    repository.set("tensorrt_llm", participant_ids="2", **FAST)
    repository.set("tensorrt_llm_draft", participant_ids="1", **FAST)
    repository.set_engine("draft", "build_config", gather_generation_logits=False)
    finding = repository.find("fast-logits")
    assert finding.file == "tensorrt_llm_draft/config.pbtxt"
    assert "--gather_generation_logits" in finding.remedy
