from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

Make = Callable[..., Any]


def split(repository: Any, role: str, ranks: int) -> None:
    repository.set_engine(role, "pretrained_config", mapping={"tp_size": ranks, "pp_size": 1})
    for rank in range(ranks):
        (repository.engines / role / f"rank{rank}.engine").write_bytes(b"plan")


@pytest.mark.parametrize(
    ("target", "code", "says"),
    [
        ("1,2", "participants-overlap", "participant_ids 1,2 overlap with those of tensorrt_llm_draft in 1"),
        ("0,2", "participants-orchestrator", "include 0"),
        ("", "participants-missing", "tensorrt_llm: no participant_ids, tensorrt_llm_draft has them"),
        ("2", "placement-count", "participant_ids lists 1 (2), its engine has 2 ranks (tp * pp)"),
        ("2,x", "placement-list", "'2,x'"),
        ("2,2", "participants-overlap", "overlap"),
    ],
)
def test_b074_participants(ours: Make, target: str, code: str, says: str) -> None:
    repository = ours()
    split(repository, "target", 2)
    repository.set("tensorrt_llm", gpu_device_ids="1,2", participant_ids="2,3")
    repository.set("tensorrt_llm_draft", participant_ids="1")
    assert repository.findings() == []
    repository.set("tensorrt_llm", participant_ids=target)
    finding = repository.find(code)
    assert finding.severity == "error"
    assert says in finding.what


def test_b074_rank_0_is_the_orchestrator(ours: Make) -> None:
    repository = ours()
    repository.set("tensorrt_llm", participant_ids="0")
    repository.set("tensorrt_llm_draft", participant_ids="1")
    assert repository.find("participants-orchestrator").why == "rank 0 is the orchestrator"


def test_b074_a_single_engine_may_start_at_rank_0(ours: Make) -> None:
    repository = ours(draft=None, max_draft_len=0)
    repository.set("tensorrt_llm", participant_ids="0")
    assert repository.findings() == []


@pytest.mark.parametrize(
    ("ranks", "devices", "code", "says"),
    [
        (4, "0,1", "placement-count", "gpu_device_ids lists 2 (0,1), its engine has 4 ranks (tp * pp)"),
        (2, "0,8", "device-absent", "name GPU 8, 8 are visible (0 to 7)"),
        (2, "1,1", "device-twice", "name GPU 1 more than once"),
        (2, "0;1", "placement-count", "gpu_device_ids lists 1 (0)"),
        (16, "", "device-count", "16 ranks (tp * pp), 8 GPUs are visible"),
    ],
)
def test_b075_gpus(ours: Make, ranks: int, devices: str, code: str, says: str) -> None:
    repository = ours()
    repository.options = replace(repository.options, visible_gpus=8)
    split(repository, "target", ranks)
    repository.set("tensorrt_llm", gpu_device_ids=devices)
    findings = [finding for finding in repository.findings() if finding.code == code]
    assert findings
    assert all(finding.severity == "error" for finding in findings)
    assert says in findings[0].what


def test_b075_the_remedy_names_dockers_selection(ours: Make) -> None:
    repository = ours()
    split(repository, "target", 4)
    repository.set("tensorrt_llm", gpu_device_ids="0,1")
    assert "docker --gpus" in repository.find("placement-count").remedy


def test_several_nodes_name_the_gpus_of_one(ours: Make) -> None:
    repository = ours()
    repository.options = replace(repository.options, visible_gpus=8)
    split(repository, "target", 16)
    ranks = ",".join(map(str, range(2, 18)))
    repository.set("tensorrt_llm", gpu_device_ids="0,1,2,3,4,5,6,7", participant_ids=ranks, num_nodes="2")
    repository.set("tensorrt_llm_draft", participant_ids="1")
    assert repository.findings() == []


def test_instances_have_lists_of_their_own(ours: Make) -> None:
    repository = ours()
    split(repository, "target", 2)
    repository.set("tensorrt_llm", gpu_device_ids="0,1;2,3")
    assert repository.findings() == []


def test_before_num_nodes_pre_spawned_ranks_tell_that_there_may_be_several(ours: Make) -> None:
    repository = ours("0.18.2")
    split(repository, "target", 4)
    repository.set("tensorrt_llm", gpu_device_ids="0,1")
    repository.find("placement-count")
    repository.set("tensorrt_llm", participant_ids="2,3,4,5")
    repository.set("tensorrt_llm_draft", participant_ids="1")
    assert repository.findings() == []
    repository.set("tensorrt_llm", gpu_device_ids="0,1,2")
    repository.find("placement-count")


def test_a_model_over_two_nodes_needs_no_list(ours: Make) -> None:
    repository = ours(draft=None, max_draft_len=0)
    repository.options = replace(repository.options, visible_gpus=8)
    split(repository, "target", 16)
    repository.set("tensorrt_llm", gpu_device_ids="", num_nodes="1")
    repository.find("device-count")
    repository.set("tensorrt_llm", num_nodes="2")
    assert repository.findings() == []
