import json

import pytest

from trt_spec.deploy.check.options import CheckOptions
from trt_spec.deploy.check.run import inspect_repository
from trt_spec.deploy.repository import write_repository


@pytest.fixture
def root(deployment, tmp_path):
    return write_repository(deployment, tmp_path / "repository")


def found(root):
    report = inspect_repository(root, CheckOptions())
    return {row.file: row for row in report.findings if row.code in ("file-changed", "file-missing", "marker")}


def test_files_changed_and_gone_since_trtspec_wrote_them(root):
    assert found(root) == {}
    (root / "ensemble" / "1" / "model.py").write_text("# mine\n")
    (root / "tensorrt_llm_bls" / "1" / "trtspec_serve" / "tokens.py").unlink()
    changed = found(root)
    assert changed["ensemble/1/model.py"].severity == "warning"
    assert changed["tensorrt_llm_bls/1/trtspec_serve/tokens.py"].severity == "error"
    assert len(changed) == 2


@pytest.mark.parametrize("text", ["", "{}", "[]", "\0", '{"files": 1}'])
def test_a_marker_of_somebody_else(root, text):
    (root / "trtspec.json").write_text(text)
    assert found(root).keys() == {"trtspec.json"}


def test_a_marker_leads_to_nothing_outside(root, tmp_path):
    (tmp_path / "outside").write_text("x")
    files = {"../outside": "0", str(tmp_path / "outside"): "0", "a\0b": "0"}
    (root / "trtspec.json").write_text(json.dumps({"files": files}))
    assert found(root).keys() == {"a\\x00b"}


@pytest.mark.parametrize(
    ("name", "severity"),
    [
        ("tensorrt_llm_bls/1/trtspec_serve/sampling.py", "warning"),
        ("ensemble/1/model.py", "warning"),
        ("ensemble/1/tokenizer/tokenizer_config.json", "warning"),
        ("tensorrt_llm/config.pbtxt", "note"),
    ],
)
def test_changed_code_and_tokenizers_are_a_warning(ours, name, severity):
    repository = ours()
    file = repository.root / name
    file.write_bytes(file.read_bytes() + b"\n")
    finding = repository.find("file-changed")
    assert (finding.file, finding.severity) == (name, severity)
