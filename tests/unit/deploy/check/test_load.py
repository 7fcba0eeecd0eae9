"""Placeholders, syntax, and files that cannot be read."""

import os
import socket
from pathlib import Path

import pytest

from trt_spec.deploy.check.reading import MAX_CONFIG_BYTES, shown


def test_b001_a_template_that_was_not_filled_is_named_with_file_line_and_field(nvidia):
    repository = nvidia("0.18.2")
    text = repository.file("tensorrt_llm").read_text()
    start = text.index('name: "generation_logits"')
    broken = text[:start] + text[start:].replace("TYPE_FP32", "${logits_datatype}", 1)
    repository.file("tensorrt_llm").write_text(broken)
    finding = repository.find("placeholder")
    assert finding.severity == "error"
    assert finding.file == "tensorrt_llm/config.pbtxt"
    assert finding.line == broken[: broken.index("${logits_datatype}")].count("\n") + 1
    assert "logits_datatype" in finding.what
    assert "generation_logits" in finding.what
    assert "logits_datatype" in finding.remedy


def test_b001_every_placeholder_outside_strings_is_named_in_every_model(nvidia):
    repository = nvidia()
    for model in ("tensorrt_llm", "tensorrt_llm_bls", "ensemble"):
        repository.edit(model, "max_batch_size: 8", "max_batch_size: ${triton_max_batch_size}")
    found = repository.findings("placeholder")
    assert [finding.file.partition("/")[0] for finding in found] == ["ensemble", "tensorrt_llm", "tensorrt_llm_bls"]


def test_comments_hold_what_they_like(nvidia):
    repository = nvidia()
    file = repository.file("ensemble")
    file.write_text("# fill ${triton_max_batch_size} in\n" + file.read_text())
    assert not repository.findings("placeholder")


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("max_batch_size: 8", "max_batchsize: 4", "max_batchsize"),
        ("max_batch_size: 8", "max_batch_size: four", "four"),
        ("max_batch_size: 8", "max_batch_size: 8\nmax_batch_size: 5", "max_batch_size"),
        ("max_batch_size: 8", "max_batch_size: 8 }", "}"),
    ],
)
def test_syntax_errors_have_their_line(nvidia, old, new, says):
    repository = nvidia()
    line = repository.edit("ensemble", old, new)
    finding = repository.find("config-syntax")
    assert (finding.file, finding.severity) == ("ensemble/config.pbtxt", "error")
    assert finding.line in (line, line + 1)
    assert says in finding.what


def test_an_unreadable_model_hides_nothing_of_the_others(nvidia):
    repository = nvidia()
    repository.edit("preprocessing", "max_batch_size: 8", "max_batch_size: ?")
    (repository.root / "postprocessing" / "1" / "model.py").unlink()
    assert repository.findings("config-syntax")
    assert repository.findings("model-file")


@pytest.mark.parametrize("kind", ["missing", "folder", "binary", "huge", "fifo", "socket", "link", "circle"])
def test_what_stands_in_place_of_the_configuration_is_reported(nvidia, tmp_path, monkeypatch, kind):
    repository = nvidia()
    file = repository.file("preprocessing")
    file.unlink()
    if kind == "folder":
        file.mkdir()
    elif kind == "binary":
        file.write_bytes(b"name: \xff\xfe\0")
    elif kind == "huge":
        with file.open("wb") as out:
            out.truncate(MAX_CONFIG_BYTES + 1)
    elif kind == "fifo":
        os.mkfifo(file)
    elif kind == "socket":
        monkeypatch.chdir(file.parent)  # the path of a socket is short
        server = socket.socket(socket.AF_UNIX)
        server.bind(file.name)
        server.close()
    elif kind == "link":
        file.symlink_to(tmp_path / "nowhere")
    elif kind == "circle":
        file.symlink_to(file.name)
    codes = {finding.code for finding in repository.findings() if finding.file == "preprocessing/config.pbtxt"}
    assert codes & {"config-missing", "config-unreadable"}


def test_links_in_circles_and_to_nowhere_end(nvidia):
    repository = nvidia()
    (repository.root / "around").symlink_to(repository.root, target_is_directory=True)
    (repository.root / "preprocessing" / "1" / "up").symlink_to(repository.root, target_is_directory=True)
    (repository.root / "self").symlink_to("self")
    (repository.root / "gone").symlink_to("nowhere")
    findings = {(finding.code, finding.file) for finding in repository.findings()}
    assert ("config-missing", "around/config.pbtxt") in findings
    assert ("broken-link", "gone") in findings
    assert ("broken-link", "self") in findings


def test_a_hidden_folder_would_be_taken_for_a_model(nvidia):
    repository = nvidia()
    (repository.root / ".ipynb_checkpoints").mkdir()
    assert repository.find("hidden-folder").severity == "warning"


def test_names_that_are_no_text_are_shown_escaped(nvidia):
    repository = nvidia()
    name = os.fsencode(repository.root) + b"/bad\xff\x1b[31m"
    Path(os.fsdecode(name)).mkdir()
    finding = repository.find("config-missing")
    assert finding.file == "bad\\xff\\x1b[31m/config.pbtxt"
    assert shown("tensorrt_llm") == "tensorrt_llm"


def test_ten_thousand_folders_are_reported_in_seconds(nvidia):
    repository = nvidia()
    for number in range(10_000):
        (repository.root / f"m{number}").mkdir()
    assert len(repository.findings("config-missing")) == 10_000
