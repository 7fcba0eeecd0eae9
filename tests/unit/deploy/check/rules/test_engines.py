from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

Make = Callable[..., Any]
IMAGE = "nvcr.io/nvidia/tritonserver:{}-trtllm-python-py3"


def write_record(folder: Path, **more: Any) -> None:
    """manifest.json as `trtspec build` leaves it."""
    files = {
        path.name: {"bytes": path.stat().st_size, "sha256": hashlib.sha256(path.read_bytes()).hexdigest()}
        for path in folder.iterdir()
    }
    (folder / "manifest.json").write_text(json.dumps({"files": files, **more}))


def test_b082_config_json_edited_after_the_build(ours: Make) -> None:
    repository = ours()
    write_record(repository.engines / "target")
    assert repository.findings() == []
    path = repository.engines / "target" / "config.json"
    path.write_text(path.read_text().replace('"max_batch_size": 8', '"max_batch_size": 9'))
    finding = repository.find("engine-edited")
    assert (finding.severity, finding.file) == ("error", "tensorrt_llm/config.pbtxt")
    assert f"tensorrt_llm: {path.parent}: hash mismatch of config.json" in finding.what


def test_files_shorter_than_recorded(ours: Make) -> None:
    repository = ours()
    write_record(repository.engines / "draft")
    (repository.engines / "draft" / "rank0.engine").write_bytes(b"pl")
    assert "draft: rank0.engine is truncated (2 bytes, manifest 4 bytes)" in repository.find("engine-file").what


def test_every_rank_has_its_file(ours: Make) -> None:
    repository = ours()
    repository.set("tensorrt_llm", gpu_device_ids="0,1")
    repository.set_engine("target", "pretrained_config", mapping={"tp_size": 2, "pp_size": 1})
    assert "rank1.engine is missing, the mapping has 2 ranks" in repository.find("engine-ranks").what


def test_many_faults_of_one_kind_are_one_finding_of_the_model(ours: Make) -> None:
    repository = ours()
    repository.set("tensorrt_llm", gpu_device_ids="")
    repository.set_engine("target", "pretrained_config", mapping={"tp_size": 8, "pp_size": 1})
    finding = repository.find("engine-ranks")
    assert finding.file == "tensorrt_llm/config.pbtxt"
    assert finding.what.endswith("rank4.engine is missing, the mapping has 8 ranks; so it is with 3 more")


def test_a_rank_file_that_is_gone_is_told_once(ours: Make) -> None:
    repository = ours()
    write_record(repository.engines / "target")
    (repository.engines / "target" / "rank0.engine").unlink()
    assert [finding.code for finding in repository.findings()] == ["engine-file"]


def test_an_engine_of_another_version_than_the_container(ours: Make) -> None:
    repository = ours()
    repository.options = replace(repository.options, tensorrt_llm=IMAGE.format("26.02"))
    findings = repository.findings()
    assert [finding.code for finding in findings] == ["engine-version"] * 2
    assert "built with TensorRT-LLM 1.2.1, it is meant for 1.1.0, which container 26.02 holds" in findings[0].what
    assert "26.07" in findings[0].remedy
    repository.options = replace(repository.options, tensorrt_llm=IMAGE.format("26.07"))
    assert repository.findings() == []


def test_an_engine_of_another_version_than_the_repository(ours: Make) -> None:
    repository = ours()
    repository.set_engine("target", version="1.2.0")
    assert (
        "built with TensorRT-LLM 1.2.0, it is meant for 1.2.1, as trtspec.json says"
        in repository.find("engine-version").what
    )
    assert "tensorrt_llm 1.2.0, tensorrt_llm_draft 1.2.1" in repository.find("engine-versions-differ").what


@pytest.mark.parametrize(("stated", "codes"), [("9.0", []), ("sm90", []), ("8.0", ["engine-gpu"])])
def test_the_architecture_that_a_build_recorded(ours: Make, stated: str, codes: list[str]) -> None:
    repository = ours()
    write_record(repository.engines / "target", gpus=[{"index": 0, "compute_capability": "9.0"}])
    repository.options = replace(repository.options, compute_capability=stated)
    assert [finding.code for finding in repository.findings()] == codes


def test_a_path_beside_the_engines_that_are_here(ours: Make) -> None:
    repository = ours()
    repository.set("tensorrt_llm", gpt_model_path=str(repository.engines / "taget"))
    finding = repository.find("engine-missing")
    assert finding.severity == "error"
    assert "taget" in repository.line(finding)


def test_paths_of_another_machine_are_not_judged(ours: Make) -> None:
    repository = ours()
    repository.set("tensorrt_llm", gpt_model_path="/srv/nowhere/engines/target")
    assert repository.findings() == []
    repository.options = replace(repository.options, mounts=(("/srv/nowhere/engines", repository.engines),))
    assert repository.findings() == []
    repository.set("tensorrt_llm", gpt_model_path="/srv/nowhere/engines/taget")
    repository.find("engine-missing")


def test_a_path_that_counts_from_somewhere(ours: Make) -> None:
    repository = ours()
    repository.set("tensorrt_llm", gpt_model_path="engines/target")
    assert "is no absolute path" in repository.find("engine-path").what


@pytest.mark.parametrize("content", [None, "", "{", "[]"])
def test_an_engine_without_its_config(ours: Make, content: str | None) -> None:
    repository = ours()
    path = repository.engines / "draft" / "config.json"
    path.unlink() if content is None else path.write_text(content)
    finding = repository.find("engine-config")
    assert finding.file == "tensorrt_llm_draft/config.pbtxt"
    assert "config.json" in finding.what
