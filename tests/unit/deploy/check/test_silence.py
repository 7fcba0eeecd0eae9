"""What `check` says of repositories without a fault, in every recorded version."""

from dataclasses import replace

import pytest

from trt_spec.deploy.check.run import check_repository
from trt_spec.deploy.check.view import CheckOptions
from trt_spec.deploy.dialect import RECORDED_VERSIONS
from trt_spec.deploy.llmapi import write_llmapi_repository
from trt_spec.deploy.repository import write_repository
from trt_spec.spec.model import Spec

# What the known failures call a fault of a template filled as NVIDIA's README says, and what it leaves to defaults.
README_FINDINGS = {"instance-count", "queue-unbounded", "placeholder-unset"}
LLMAPI_FINDINGS = {
    "llmapi-openai",
    "llmapi-one-event",
}  # known troubles of the container, told and no fault of the files


@pytest.mark.parametrize("version", RECORDED_VERSIONS)
def test_nvidias_template_filled_as_its_readme_says_passes(nvidia, version):
    repository = nvidia(version)
    assert {finding.code for finding in repository.findings()} <= README_FINDINGS
    assert not [finding for finding in repository.findings() if finding.severity == "error"]


@pytest.mark.parametrize("version", [*RECORDED_VERSIONS, "1.2.1"])
@pytest.mark.parametrize("has_draft", [True, False])
def test_ours_is_silent(deployment, tmp_path, version, has_draft):
    one = replace(deployment, tensorrt_llm=version)
    if not has_draft:
        one = replace(one, draft=None, max_draft_len=0)
    report = check_repository(write_repository(one, tmp_path / "repository"), CheckOptions())
    # The engine folders are empty here, which rules about engines may tell; the core has nothing to say.
    assert [row for row in report.findings if not row.code.startswith("engine")] == []
    assert report.version_reason == f"{version}, as trtspec.json says"


def test_ours_of_the_llm_api_is_silent_and_its_tensors_are_compared(tmp_path):
    models = {"target": {"model": "./target"}, "draft": {"model": "./draft"}}
    values = {"name": "pair", "backend": "llmapi", "hardware": {"gpu": "H200", "gpus": 1}, **models}
    root = write_llmapi_repository(Spec.model_validate(values), tmp_path / "repository")
    report = check_repository(root, CheckOptions())
    assert {row.code for row in report.findings} <= LLMAPI_FINDINGS
    file = root / "tensorrt_llm" / "config.pbtxt"
    file.write_text(file.read_text().replace("TYPE_BOOL", "TYPE_INT32", 1))
    assert "tensor-dtype" in {row.code for row in check_repository(root, CheckOptions()).findings}
