from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from trt_spec.deploy.pbtxt import DynamicBatching, InstanceGroup

Make = Callable[..., Any]
COUNTS = ("tensorrt_llm_bls", "preprocessing", "postprocessing")


@pytest.mark.parametrize(("batch", "concurrency", "suggested"), [(16, 16, 16), (16, None, 16), (8, 16, 8), (16, 3, 3)])
def test_b010_one_instance_for_many_requests(theirs: Make, batch: int, concurrency: int | None, suggested: int) -> None:
    repository = theirs()
    repository.options = replace(repository.options, concurrency=concurrency)
    for role in ("target", "draft"):
        repository.set_engine(role, "build_config", max_batch_size=batch)
    findings = [finding for finding in repository.findings() if finding.code == "instance-count"]
    assert sorted(finding.file.partition("/")[0] for finding in findings) == sorted(COUNTS)
    for finding in findings:
        assert finding.severity == "warning"
        assert f"count is 1, up to {suggested} requests" in finding.what
        name = finding.file.partition("/")[0].removeprefix("tensorrt_llm_")
        assert f"count to {suggested} ({name}_instance_count in the template)" in finding.remedy
        assert "count: 1" in repository.line(finding)


def test_b010_enough_instances_or_one_client(theirs: Make) -> None:
    repository = theirs()
    repository.options = replace(repository.options, concurrency=1)
    assert "instance-count" not in {finding.code for finding in repository.findings()}
    repository.options = replace(repository.options, concurrency=4)
    repository.change("tensorrt_llm_bls", instance_group=InstanceGroup(3))
    for model in ("preprocessing", "postprocessing"):
        repository.change(model, instance_group=InstanceGroup(2))
    assert "count is 3, up to 4" in repository.find("instance-count").what
    repository.change("tensorrt_llm_bls", instance_group=InstanceGroup(4))
    assert "instance-count" not in {finding.code for finding in repository.findings()}


def test_b010_our_orchestrator_serves_many_with_one_instance(ours: Make) -> None:
    repository = ours()
    repository.options = replace(repository.options, concurrency=64)
    assert repository.findings() == []


@pytest.mark.parametrize(
    ("batching", "says"), [(DynamicBatching((8,), 0, 0), "max_queue_size is 0"), (None, "max_queue_size is not set")]
)
def test_b106_a_queue_without_a_bound(theirs: Make, batching: DynamicBatching | None, says: str) -> None:
    repository = theirs()
    repository.change("tensorrt_llm", dynamic_batching=batching)
    repository.change("tensorrt_llm_draft", dynamic_batching=DynamicBatching((8,), 0, 9))
    finding = repository.find("queue-unbounded")
    assert (finding.severity, finding.file) == ("warning", "tensorrt_llm/config.pbtxt")
    assert f"{says}, so its queue is unbounded" in finding.what
    assert (finding.line is None) == (batching is None)


def test_b106_our_orchestrators_bound_what_their_engines_get(ours: Make) -> None:
    repository = ours()
    assert repository.findings() == []
    for model in ("tensorrt_llm_bls", "ensemble"):
        repository.set(model, tensorrt_llm_draft_model_name="")
    unbounded = [finding for finding in repository.findings() if finding.code == "queue-unbounded"]
    assert [finding.file for finding in unbounded] == ["tensorrt_llm_draft/config.pbtxt"]


def test_b106_a_bound_at_the_engine_makes_calls_wait(ours: Make) -> None:
    repository = ours()
    repository.change("tensorrt_llm", dynamic_batching=DynamicBatching((8,), 0, 256))
    finding = repository.find("queue-stalls")
    assert (finding.severity, finding.file) == ("note", "tensorrt_llm/config.pbtxt")
    assert "max_queue_size: 256" in repository.line(finding)


def test_b010_without_the_engine_its_models_batch_counts(theirs: Make) -> None:
    repository = theirs()
    for model in ("tensorrt_llm", "tensorrt_llm_draft"):
        repository.set(model, gpt_model_path="/elsewhere/engines/x")
    assert {finding.what.rpartition(" is 1, ")[2] for finding in repository.findings() if "count" in finding.code} == {
        "up to 8 requests are meant to run at once"
    }
