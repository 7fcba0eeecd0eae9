from __future__ import annotations

from typing import Any

import pytest

from trt_spec.errors import SpecError
from trt_spec.plan.llmapi_launch import plan_llmapi_launch
from trt_spec.plan.placement import plan_placement
from trt_spec.spec.model import Spec


def make(**target: Any) -> Spec:
    return Spec.model_validate(
        {
            "name": "pair",
            "backend": "llmapi",
            "hardware": {"gpu": "H100", "gpus": 8},
            "target": {"model": "owner/big", **target},
            "speculation": {"mode": "ngram"},
            "serve": {"host": "0.0.0.0", "http_port": 9000},
        }
    )


def test_a_whole_model_is_one_process_without_mpi() -> None:
    launch = plan_llmapi_launch(make(), "/a: work, space/repository")
    assert (launch.mode, launch.world_size, launch.nodes) == ("llmapi", 1, (0,))
    command = launch.command()
    assert command == launch.ranks[0]
    assert command[0] == "/opt/tritonserver/bin/tritonserver"
    assert {"--http-port=9000", "--http-address=0.0.0.0", "--disable-auto-complete-config"} <= set(command)
    assert "TRTLLM_ORCHESTRATOR" not in launch.environment


@pytest.mark.parametrize("split", [(2, 1), (4, 1), (8, 1), (2, 2), (4, 2)])
def test_a_split_model_is_a_rank_for_each_gpu(split: tuple[int, int]) -> None:
    spec = make(tensor_parallel=split[0], pipeline_parallel=split[1]) if split[1] == 1 else None
    if spec is None:  # speculation and pipeline parallelism exclude each other
        values = make(tensor_parallel=split[0]).model_dump()
        values["target"]["pipeline_parallel"] = split[1]
        spec = Spec.model_validate({**values, "speculation": {"mode": "none"}})
    ranks = split[0] * split[1]
    launch = plan_llmapi_launch(spec, "/models/repository")
    assert launch.world_size == plan_placement(spec)[0].world_size == ranks
    assert launch.nodes == (0,) * ranks
    words = launch.command()
    assert words[0] == "mpirun" and words.count(":") == ranks - 1 and words.count("trtllm-llmapi-launch") == ranks
    assert all(argv[0] == "trtllm-llmapi-launch" for argv in launch.ranks)
    prefixes = {word for argv in launch.ranks for word in argv if "shm-region-prefix-name" in word}
    assert len(prefixes) == ranks
    assert "--load-model=tensorrt_llm" not in launch.ranks[0]
    assert all("--load-model=tensorrt_llm" in argv for argv in launch.ranks[1:])


def test_named_gpus_are_the_visible_ones() -> None:
    launch = plan_llmapi_launch(make(tensor_parallel=2, gpus=[6, 3]), "/models/repository")
    assert launch.environment["CUDA_VISIBLE_DEVICES"] == "6,3"
    assert "CUDA_VISIBLE_DEVICES" not in plan_llmapi_launch(make(), "/r").environment


def test_hub_models_need_the_hub_and_folders_do_not() -> None:
    assert "HF_HUB_OFFLINE" not in plan_llmapi_launch(make(), "/r").environment
    assert plan_llmapi_launch(make(model="/models/big"), "/r").environment["HF_HUB_OFFLINE"] == "1"


@pytest.mark.parametrize("path", ["/with blank/r", "/star*/r", "/tab\t/r"])
def test_a_path_that_nvidias_rank_launcher_would_break_is_refused(path: str) -> None:
    with pytest.raises(SpecError, match="trtllm-llmapi-launch") as caught:
        plan_llmapi_launch(make(tensor_parallel=2), path)
    assert "-o" in caught.value.remedy
    plan_llmapi_launch(make(), path)


def test_gpus_of_another_node_are_refused_by_the_placement() -> None:
    values = make().model_dump()
    values["hardware"] |= {"gpus": 2, "nodes": 2}
    values["target"] |= {"tensor_parallel": 4}
    findings = plan_placement(Spec.model_validate(values))[1]
    assert [finding.code for finding in findings if finding.severity == "refuse"] == ["place-nodes"]
