"""What is refused before a start on a GPU host, by what nvidia-smi and the engines' records say."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from trt_spec.deploy.host.gpu_host.preflight import check_gpu_host, check_one_node
from trt_spec.deploy.host.gpu_host.resolve import find_mounts
from trt_spec.deploy.host.gpu_host.runner import Runner
from trt_spec.deploy.host.gpu_host.visible import choose_visible, resolve_visible_gpus
from trt_spec.deploy.load_time import LOAD_BASE_S, LOAD_BYTES_PER_S, load_time_s, sum_engine_bytes
from trt_spec.errors import EnvironmentMissing, SpecError
from trt_spec.plan.engine_record import SeenGpu
from trt_spec.plan.hardware import GIB
from trt_spec.plan.manifest import BuiltWith, Manifest
from trt_spec.plan.placement import plan_placement
from trt_spec.plan.workspace import Workspace
from trt_spec.spec.model import Spec

IMAGE = "nvcr.io/nvidia/tritonserver:26.07-trtllm-python-py3"
BUILT_WITH = BuiltWith(
    tensorrt_llm="1.2.1", tensorrt="10.14.1.48", container=IMAGE, gpu="NVIDIA H200", compute_capability="9.0"
)


def gpus(count: int, **capabilities: str) -> list[SeenGpu]:
    """``count`` H200s; gpu2="8.6" makes another one of the third."""
    return [
        SeenGpu(index, "NVIDIA H200", capabilities.get(f"gpu{index}", "9.0"), 140 * GIB, "590.44.01")
        for index in range(count)
    ]


@pytest.fixture
def built(tmp_path: Path, gpu_manifest: Callable[..., Manifest]) -> Callable[..., tuple]:
    """built(entry, **sections) -> arguments of check_gpu_host up to the runner, with engines on disk."""

    def make(built_with: BuiltWith = BUILT_WITH, **sections: object) -> tuple[Manifest, Workspace, object]:
        manifest = gpu_manifest({"built_with": built_with}, **sections)
        place = Workspace(tmp_path / "work")
        for role, model in manifest.spec.models().items():
            folder = place.engine(role)
            folder.mkdir(parents=True, exist_ok=True)
            for rank in range(model.tensor_parallel):
                (folder / f"rank{rank}.engine").write_bytes(b"engine")
            files = {path.name: {"bytes": path.stat().st_size, "sha256": ""} for path in folder.glob("*.engine")}
            (folder / "manifest.json").write_text(json.dumps({"files": files}))
        return manifest, place, plan_placement(manifest.spec)[0]

    return make


def test_a_fitting_host_is_silent(built) -> None:
    check_gpu_host(*built(), Runner(IMAGE), gpus(4))
    check_gpu_host(*built(), Runner("", Path("/x"), "1.2.1"), gpus(2))
    check_gpu_host(*built(), Runner("registry.local/mine:latest"), gpus(2))


def test_b075_fewer_gpus_than_ranks(built) -> None:
    """tensorrtllm_backend issue 283: the engine says so only after it was read."""
    with pytest.raises(EnvironmentMissing, match=r"tensorrt_llm engine is sm90, GPU 1 is not there\. 1 is visible"):
        check_gpu_host(*built(), Runner(IMAGE), gpus(1))
    with pytest.raises(EnvironmentMissing, match="lists no GPU"):
        check_gpu_host(*built(), Runner(IMAGE), [])


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ({"tensor_parallel": 4, "gpus": [0, 1]}, "found 2 indices, expected 4"),
        ({"tensor_parallel": 2, "gpus": [0, 8]}, "found index 8, expected 0 to 7"),
        ({"tensor_parallel": 2, "gpus": [1, 1]}, "an index twice"),
    ],
)
def test_b075_gpus_that_cannot_be_are_refused_by_the_spec(target, message) -> None:
    with pytest.raises(ValueError, match=message):
        Spec.model_validate(
            {
                "name": "x",
                "backend": "engine",
                "hardware": {"gpu": "H200", "gpus": 8},
                "target": {"model": "a/b", **target},
                "draft": {"model": "a/c"},
            }
        )


def test_b075_visible_devices_are_counted_anew() -> None:
    seen = gpus(8, gpu5="8.6")
    assert resolve_visible_gpus(seen, None) == tuple(seen)
    visible = resolve_visible_gpus(seen, "5, 2")
    assert [(gpu.index, gpu.compute_capability) for gpu in visible] == [(0, "8.6"), (1, "9.0")]
    assert len(resolve_visible_gpus(seen, "1,9,2")) == 1  # CUDA ignores what follows an index that is not there
    assert resolve_visible_gpus(seen, "") == resolve_visible_gpus(seen, "-1") == ()
    with pytest.raises(EnvironmentMissing, match="GPU-8f"):
        resolve_visible_gpus(seen, "GPU-8f3a")


def test_chosen_gpus_count_among_the_visible_ones() -> None:
    assert choose_visible(None, "2,3") == "2,3"
    assert choose_visible("4, 5,6,7", "2,3") == "6,7"


def test_b013_a_gpu_of_another_architecture(built) -> None:
    with pytest.raises(EnvironmentMissing, match=r"tensorrt_llm engine is sm90, GPU 1 \(NVIDIA H200\) is sm86"):
        check_gpu_host(*built(), Runner(IMAGE), gpus(4, gpu1="8.6"))
    check_gpu_host(*built(), Runner(IMAGE), gpus(4, gpu3="8.6"))  # which runs nothing


def test_b011_an_engine_of_another_version(built) -> None:
    old = BUILT_WITH.model_copy(update={"tensorrt_llm": "0.18.2"})
    with pytest.raises(SpecError, match=r"built with TensorRT-LLM 0\.18\.2, container 26\.07 ships 1\.2\.1"):
        check_gpu_host(*built(old), Runner(IMAGE), gpus(4))
    with pytest.raises(SpecError, match=r"TensorRT-LLM 0\.18\.2, 1\.2\.1 is installed"):
        check_gpu_host(*built(old), Runner("", Path("/x"), "1.2.1"), gpus(4))


def test_b014_an_engine_that_is_not_whole(built) -> None:
    arguments = built()
    place = arguments[1]
    (place.engine("target") / "rank1.engine").write_bytes(b"engin")
    with pytest.raises(SpecError, match=r"rank1\.engine is truncated \(5 bytes, manifest 6 bytes\)"):
        check_gpu_host(*arguments, Runner(IMAGE), gpus(4))
    for damaged in ("{", "[]", '{"files": []}', '{"files": {"a": 1}}'):
        (place.engine("draft") / "manifest.json").write_text(damaged)
        with pytest.raises(SpecError, match="missing or damaged"):
            check_gpu_host(*arguments, Runner(IMAGE), gpus(4))


def test_ranks_of_several_nodes_are_for_others(gpu_manifest) -> None:
    spec = gpu_manifest(hardware={"gpus": 2, "nodes": 2}, draft={"gpus": [2]}).spec
    with pytest.raises(SpecError, match=r"ranks lie on 2 nodes.*--to slurm"):
        check_one_node(plan_placement(spec)[0])


def test_links_out_of_the_workspace_are_mounted_too(tmp_path: Path) -> None:
    work, disk = tmp_path / "work", tmp_path / "disk"
    (work / "engines").mkdir(parents=True)
    (disk / "target").mkdir(parents=True)
    (work / "engines" / "target").symlink_to(disk / "target")
    (work / "engines" / "draft").mkdir()
    assert find_mounts(work, work / "engines" / "target", work / "engines" / "draft") == (work, disk / "target")
    (tmp_path / "link").symlink_to(disk)  # a folder is read by the name that is written down, also where that is a link
    assert find_mounts(work, tmp_path / "link") == (work, tmp_path / "link", disk)


def test_large_engines_get_time_to_load(built) -> None:
    manifest, place, _ = built()
    assert load_time_s(sum_engine_bytes(manifest, place)) == pytest.approx(LOAD_BASE_S, abs=1)
    with (place.engine("target") / "rank0.engine").open("wb") as file:
        file.truncate(400 * 10**9)
    assert load_time_s(sum_engine_bytes(manifest, place)) == pytest.approx(
        LOAD_BASE_S + 400e9 / LOAD_BYTES_PER_S, rel=0.01
    )
