from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from trt_spec.deploy.check.options import CheckOptions
from trt_spec.deploy.check.run import inspect_repository
from trt_spec.deploy.dialect import load_llmapi_template
from trt_spec.deploy.llmapi import write_llmapi_repository
from trt_spec.deploy.pbtxt import ModelConfig, render_pbtxt
from trt_spec.spec.model import Spec

Make = Callable[..., Any]
SPECULATION = {"decoding_type": "DraftTarget", "max_draft_len": 3, "speculative_model_dir": "/models/draft"}
SETTINGS = {
    "model": "/models/target",
    "backend": "pytorch",
    "tensor_parallel_size": 1,
    "pipeline_parallel_size": 1,
    "triton_config": {"max_batch_size": 0, "decoupled": False},
}
REPORTED = {"llmapi-openai", "llmapi-one-event"}


def check(root: Path, version: str | None = "1.1.0", decoupled: bool = False, **settings: Any) -> list[Any]:
    """Findings of an LLM API repository with these settings beyond SETTINGS, but for what is only reported."""
    return check_text(root, yaml.safe_dump({**SETTINGS, **settings}), version, decoupled)


def check_text(root: Path, text: str, version: str | None = "1.1.0", decoupled: bool = False) -> list[Any]:
    code = root / "tensorrt_llm" / "1"
    code.mkdir(parents=True, exist_ok=True)
    (code / "model.yaml").write_text(text)
    (code / "model.py").write_text("# code\n")
    template = load_llmapi_template("1.3.0rc3").models["tensorrt_llm"]
    config = ModelConfig("tensorrt_llm", "python", 0, template.inputs, template.outputs, decoupled=decoupled)
    (code.parent / "config.pbtxt").write_text(render_pbtxt(config))
    return [finding for finding in inspect(root, version) if finding.code not in REPORTED]


def inspect(root: Path, version: str | None) -> tuple[Any, ...]:
    return inspect_repository(root, CheckOptions(tensorrt_llm=version)).findings


@pytest.mark.parametrize("version", ["1.0.0", "1.1.0", "1.2.1", "1.3.0rc3"])
def test_spelling_of_older_versions(tmp_path: Path, version: str) -> None:
    assert check(tmp_path, version, speculative_config=SPECULATION) == []
    (finding,) = check(tmp_path, version, speculative_config={**SPECULATION, "decoding_type": "Draft_Target"})
    assert (finding.code, finding.severity) == ("llmapi-spelling", "error")
    assert finding.file == "tensorrt_llm/1/model.yaml"
    assert f"decoding_type is Draft_Target, TensorRT-LLM {version} spells it DraftTarget" in finding.what
    lines = (tmp_path / finding.file).read_text().splitlines()
    assert lines[finding.line - 1] == "  decoding_type: Draft_Target"


def test_spelling_of_newer_versions(tmp_path: Path) -> None:
    (finding,) = check(tmp_path, "1.3.0rc20", speculative_config=SPECULATION)
    assert (finding.code, finding.severity) == ("llmapi-spelling", "warning")
    assert "spells it Draft_Target" in finding.what


def test_without_a_version_no_spelling_is_judged(tmp_path: Path) -> None:
    for spelling in ("DraftTarget", "Draft_Target"):
        assert check(tmp_path, None, speculative_config={**SPECULATION, "decoding_type": spelling}) == []


@pytest.mark.parametrize("mode", ["Medusa", "Lookahead"])
def test_modes_that_the_pytorch_path_refuses(tmp_path: Path, mode: str) -> None:
    (finding,) = check(tmp_path, speculative_config={"decoding_type": mode, "max_draft_len": 3})
    assert (finding.code, finding.severity) == ("llmapi-mode", "error")
    assert "refuses" in finding.why


@pytest.mark.parametrize(("version", "is_known"), [("1.1.0", False), ("1.2.1", True)])
def test_the_newer_name_of_the_draft(tmp_path: Path, version: str, is_known: bool) -> None:
    named = {"decoding_type": "DraftTarget", "max_draft_len": 3, "speculative_model": "/models/draft"}
    findings = check(tmp_path, version, speculative_config=named)
    assert [finding.code for finding in findings] == ([] if is_known else ["llmapi-draft"])


def test_a_pair_without_its_draft(tmp_path: Path) -> None:
    (finding,) = check(tmp_path, speculative_config={"decoding_type": "DraftTarget", "max_draft_len": 3})
    assert "names no draft model, TensorRT-LLM 1.1.0 reads speculative_model_dir" in finding.what


def test_decoupled_stands_in_both_files(tmp_path: Path) -> None:
    (finding,) = check(tmp_path, triton_config={"max_batch_size": 0, "decoupled": True})
    assert (finding.code, finding.severity) == ("llmapi-decoupled", "error")
    assert finding.file == "tensorrt_llm/config.pbtxt"
    assert check(tmp_path, decoupled=True, triton_config={"max_batch_size": 0, "decoupled": True}) == []


def test_pipeline_stages(tmp_path: Path) -> None:
    (finding,) = check(tmp_path, pipeline_parallel_size=2, speculative_config=SPECULATION)
    assert finding.code == "llmapi-pipeline"
    assert check(tmp_path, pipeline_parallel_size=2) == []


@pytest.mark.parametrize(
    ("text", "line", "says"),
    [
        ("model: [", 1, "not valid YAML"),
        ("a: 1\nb: &x [1]\nc: *x\n", 3, "alias"),
        ("- 1\n", None, "holds no settings"),
        ("", None, "holds no settings"),
        ("[" * 9999, 1, "nesting"),
    ],
)
def test_a_file_that_is_no_settings(tmp_path: Path, text: str, line: int | None, says: str) -> None:
    (finding,) = check_text(tmp_path, text)
    assert says in finding.what
    assert (finding.code, finding.severity, finding.line) == ("llmapi-yaml", "error", line)


def test_what_is_reported_of_a_version_is_a_note(tmp_path: Path) -> None:
    check(tmp_path, "1.2.1")
    findings = inspect(tmp_path, "1.2.1")
    assert {finding.code for finding in findings} == REPORTED
    assert {finding.severity for finding in findings} == {"note"}


@pytest.mark.parametrize("mode", ["draft_target", "ngram", "eagle3", "mtp", "none"])
@pytest.mark.parametrize("version", ["1.0.0", "1.1.0", "1.2.1", "1.3.0rc3", "1.3.0rc24"])
def test_nothing_but_reports_about_our_own(tmp_path: Path, version: str, mode: str) -> None:
    spec = {
        "name": "pair",
        "backend": "llmapi",
        "tensorrt_llm": version,
        "hardware": {"gpu": "H100", "gpus": 4},
        "target": {"model": "owner/large"},
        "speculation": {"mode": mode},
        **({"draft": {"model": "owner/small"}} if mode in ("draft_target", "eagle3") else {}),
    }
    root = write_llmapi_repository(Spec.model_validate(spec), tmp_path / "repository")
    assert {finding.code for finding in inspect(root, None)} <= REPORTED
