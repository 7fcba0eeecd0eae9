"""What `check` says of repositories without a fault, in every recorded version."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from trt_spec.deploy.check.options import CheckOptions
from trt_spec.deploy.check.run import inspect_repository
from trt_spec.deploy.dialect import RECORDED_VERSIONS
from trt_spec.deploy.llmapi import write_llmapi_repository
from trt_spec.deploy.pbtxt import ModelConfig, render_pbtxt
from trt_spec.spec.model import Spec

Make = Callable[..., Any]
# Known troubles of the container, told and no fault of the files.
LLMAPI_FINDINGS = {"llmapi-openai", "llmapi-one-event"}


@pytest.mark.parametrize("version", [*RECORDED_VERSIONS, "1.2.1"])
@pytest.mark.parametrize("pair", [{}, {"draft": None, "max_draft_len": 0}], ids=["pair", "target alone"])
def test_nothing_about_our_own(ours: Make, version: str, pair: dict[str, Any]) -> None:
    repository = ours(version, **pair)
    repository.options = replace(repository.options, concurrency=64, visible_gpus=8, compute_capability="9.0")
    report = inspect_repository(repository.root, repository.options)
    assert report.findings == ()
    assert report.version_reason == f"{version}, as trtspec.json says"


def test_nothing_about_our_own_with_onnx_engines(ours: Make) -> None:
    repository = ours()
    for role in ("target", "draft"):
        config = json.loads((repository.engines / role / "config.json").read_text())
        config["version"] = "onnx-1.23.2"
        config["build_config"] |= {"kv_cache_type": "continuous"}
        del config["build_config"]["plugin_config"]
        (repository.engines / role / "config.json").write_text(json.dumps(config))
        (repository.engines / role / "rank0.engine").unlink()
    assert repository.findings() == []


def test_nothing_of_the_engines_where_they_are_not_here(ours: Make) -> None:
    repository = ours()
    for model in ("tensorrt_llm", "tensorrt_llm_draft"):
        repository.set(model, gpt_model_path=f"/models/engines/{model}")
    assert repository.findings() == []


@pytest.mark.parametrize("version", RECORDED_VERSIONS)
def test_of_nvidias_readme_only_what_the_cases_call_faults(theirs: Make, version: str) -> None:
    """One instance (B010), an unbounded queue (B106), batches that the BLS refuses when it speculates (B009).

    What the README leaves to defaults is noted.
    """
    findings = theirs(version).findings()
    faults = [finding for finding in findings if finding.code != "placeholder-unset"]
    assert sorted((finding.code, finding.file.partition("/")[0]) for finding in faults) == [
        ("bls-batch", "tensorrt_llm_bls"),
        ("instance-count", "postprocessing"),
        ("instance-count", "preprocessing"),
        ("instance-count", "tensorrt_llm_bls"),
        ("queue-unbounded", "tensorrt_llm"),
        ("queue-unbounded", "tensorrt_llm_draft"),
    ]
    noted = {finding.code for finding in findings if finding.severity == "note"}
    assert noted == {"bls-batch", "placeholder-unset"}
    assert {finding.severity for finding in findings if finding.code not in noted} == {"warning"}
    assert all(finding.line for finding in findings)


@pytest.mark.parametrize("version", RECORDED_VERSIONS)
def test_nvidias_templates_of_a_single_engine_pass(nvidia: Make, version: str) -> None:
    codes = {finding.code for finding in nvidia(version).findings()}
    assert codes == {"instance-count", "queue-unbounded", "placeholder-unset"}


def test_ours_of_the_llm_api_is_silent_and_its_tensors_are_compared(tmp_path: Path) -> None:
    models = {"target": {"model": "./target"}, "draft": {"model": "./draft"}}
    values = {"name": "pair", "backend": "llmapi", "hardware": {"gpu": "H200", "gpus": 1}, **models}
    root = write_llmapi_repository(Spec.model_validate(values), tmp_path / "repository")
    assert {row.code for row in inspect_repository(root, CheckOptions()).findings} <= LLMAPI_FINDINGS
    file = root / "tensorrt_llm" / "config.pbtxt"
    file.write_text(file.read_text().replace("TYPE_BOOL", "TYPE_INT32", 1))
    assert "tensor-dtype" in {row.code for row in inspect_repository(root, CheckOptions()).findings}


def test_a_model_of_no_known_kind_has_nothing_to_hear(tmp_path: Path) -> None:
    (tmp_path / "other" / "1").mkdir(parents=True)
    (tmp_path / "other" / "config.pbtxt").write_text(render_pbtxt(ModelConfig("other", "identity", 0, (), ())))
    assert inspect_repository(tmp_path, CheckOptions()).findings == ()
