"""The verb: what it prints, and that its exit code is the answer."""

import json
import shutil

import pytest
from click.testing import CliRunner

from trt_spec.cli.main import main
from trt_spec.deploy.host import triton
from trt_spec.errors import EnvironmentMissing


@pytest.fixture
def run(tmp_path, monkeypatch):
    """run(*arguments) on a machine without GPU or container runtime, whatever this one has."""
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "df").symlink_to(shutil.which("df"))
    monkeypatch.setenv("PATH", str(programs))
    monkeypatch.setenv("HF_TOKEN", "hf_planted")
    monkeypatch.setenv("TRTSPEC_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    return lambda *arguments: CliRunner().invoke(main, ["doctor", *arguments])


def test_every_line_has_a_colour_and_the_verdicts_come_last(run):
    result = run()
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert lines[0].startswith("green platform: linux")
    assert "engine: does not work here: driver, GPUs, container runtime" in lines[-3:]
    assert "onnx: works here" in lines[-3:]
    assert "hf_planted" not in result.output


def test_the_backend_named_must_work(run):
    result = run("--backend", "engine")
    assert result.exit_code == 3
    assert result.stderr.startswith("trtspec: Backend engine does not work here: driver, GPUs, container runtime.")
    assert "embedded Triton" not in result.stdout


def test_onnx_must_work_where_none_is_named(run, monkeypatch):
    def refuse():
        raise EnvironmentMissing("It is gone.", remedy="Get it back.")

    monkeypatch.setattr(triton, "find_triton", refuse)
    result = run()
    assert result.exit_code == 3
    assert result.stderr == "trtspec: Backend onnx does not work here: embedded Triton. Get it back.\n"


def test_the_document_is_alone_on_stdout(run, tmp_path):
    result = run("--json", "--backend", "llmapi", "-o", str(tmp_path / "work"))
    assert result.exit_code == 3
    document = json.loads(result.stdout)
    assert document["backends"]["onnx"]["works"] is True
    assert document["backends"]["llmapi"]["works"] is False
    assert "hf_planted" not in result.output
    assert not (tmp_path / "work").exists()


def test_another_version_judges_by_its_own_container(run):
    assert "tritonserver:25.04-trtllm" in run("--tensorrt-llm", "0.18.2").stdout
    assert run("--tensorrt-llm", "0.10.0").exit_code == 2
