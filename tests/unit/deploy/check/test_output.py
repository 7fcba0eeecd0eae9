"""Findings as lines, as JSON and as SARIF."""

import json
from pathlib import Path

import jsonschema
import pytest

from trt_spec.deploy.check.finding import CheckFinding, Fix
from trt_spec.deploy.check.options import CheckOptions
from trt_spec.deploy.check.render import render_json, render_lines
from trt_spec.deploy.check.run import CheckReport, inspect_engine
from trt_spec.deploy.check.sarif import render_sarif

SCHEMA = json.loads((Path(__file__).parent / "schemas" / "sarif-schema-2.1.0.json").read_text())
FINDINGS = (
    CheckFinding("placeholder", "error", "a b/config.pbtxt", 3, 'is ${x}"', "why", "Do it.", Fix(3, "y")),
    CheckFinding("queue", "warning", "m\\xff/config.pbtxt", None, "esc \x1b[31m\nnext", "because", "type it"),
    CheckFinding("tensor", "note", "m/config.pbtxt", 7, "é", "why", "Do it."),
)


@pytest.fixture
def report(tmp_path):
    return CheckReport(tmp_path, "repository", FINDINGS, "1.2.1, as stated", "recorded", ("a b", "m"))


def test_sarif_is_valid_and_says_where(report, monkeypatch):
    monkeypatch.chdir(report.path.parent)
    document = json.loads(render_sarif(report.path, report.findings))
    jsonschema.Draft4Validator(SCHEMA).validate(document)
    results = document["runs"][0]["results"]
    assert [result["level"] for result in results] == ["error", "warning", "note"]
    place = results[0]["locations"][0]["physicalLocation"]
    assert place["artifactLocation"]["uri"] == f"{report.path.name}/a%20b/config.pbtxt"
    assert place["region"] == {"startLine": 3}
    assert "region" not in results[1]["locations"][0]["physicalLocation"]
    rules = document["runs"][0]["tool"]["driver"]["rules"]
    assert [rules[result["ruleIndex"]]["id"] for result in results] == [finding.code for finding in FINDINGS]


def test_sarif_of_a_folder_elsewhere_has_absolute_addresses(report, monkeypatch, tmp_path_factory):
    monkeypatch.chdir(tmp_path_factory.mktemp("elsewhere"))
    document = json.loads(render_sarif(report.path, report.findings))
    jsonschema.Draft4Validator(SCHEMA).validate(document)
    place = document["runs"][0]["results"][0]["locations"][0]["physicalLocation"]
    assert place["artifactLocation"]["uri"].startswith("file:///")


def test_sarif_without_findings_is_valid(tmp_path):
    jsonschema.Draft4Validator(SCHEMA).validate(json.loads(render_sarif(tmp_path, ())))


def test_json_has_every_finding(report):
    document = json.loads(render_json(report))
    assert document["counts"] == {"error": 1, "warning": 1, "note": 1}
    assert document["findings"][0] == {
        "code": "placeholder",
        "severity": "error",
        "file": "a b/config.pbtxt",
        "line": 3,
        "what": 'is ${x}"',
        "why": "why",
        "remedy": "Do it.",
        "fix": {"line": 3, "after": "y"},
    }
    assert "fixed" not in document
    assert json.loads(render_json(report, []))["fixed"] == []


def test_lines_for_people_steer_no_terminal(report):
    lines = list(render_lines(report, lambda text, severity: f"<{text}>"))
    assert 'a b/config.pbtxt:3: <error> [placeholder] is ${x}".' in lines
    assert "    why: why." in lines
    assert "    do: Do it." in lines
    assert all("\x1b" not in line and "\n" not in line for line in lines)


def test_the_summary_counts(report, tmp_path):
    assert report.summary == "1 error, 1 warning, 1 note"
    assert CheckReport(tmp_path, "engine", ()).summary == "no findings"
    assert CheckReport(tmp_path, "engine", FINDINGS[:1] * 2).summary == "2 errors"


@pytest.mark.parametrize("version", ["1.2.1\x1b[31m", "1.2.1\ud800", "1.2.1\u202e"])
def test_texts_of_files_are_escaped_in_every_output(tmp_path, version):
    config = {"version": version, "pretrained_config": {"mapping": {"tp_size": 1, "pp_size": 1}}, "build_config": {}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "manifest.json").write_text(json.dumps({"files": {f"rank0{version}": {"bytes": 1, "sha256": "0"}}}))
    report = inspect_engine(tmp_path, CheckOptions(), lambda *_: None)
    text = "\n".join(render_lines(report, lambda text, _: text))
    assert text.isprintable() or all(line.isprintable() for line in text.split("\n"))
    assert "1.2.1\\" in text.split("\n")[0]
    json.loads(render_sarif(report.path, report.findings).encode())
    json.loads(render_json(report).encode())
