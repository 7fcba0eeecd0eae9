"""Servers that trtspec did not deploy, through the command line."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner

from trt_spec.cli.main import main

STANDIN = Path(__file__).parents[2] / "standins" / "llm_server.py"


def load_standin():
    name = "standin_llm_server"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, STANDIN)
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    return sys.modules[name]


@pytest.fixture
def server():
    server = load_standin().LlmServer()
    yield server
    server.stop()


def verify(url: str, prompts: Path, *arguments: object):
    parts = ["verify", "--url", url, "--prompts", prompts, "--max-tokens", 6, *arguments]
    return CliRunner().invoke(main, list(map(str, parts)))


@pytest.mark.parametrize("kind", ["http", "v1", "chat", "grpc"])
def test_any_endpoint_is_measured(server, prompts_file: Path, tmp_path: Path, kind: str) -> None:
    url = {
        "http": server.http,
        "v1": f"{server.http}/v1",
        "chat": f"{server.http}/v1/chat/completions",
        "grpc": server.grpc,
    }[kind]
    more = ["--model", "ensemble"] if kind == "grpc" else []
    result = verify(url, prompts_file, "--json", "--report", tmp_path / "r", "--junit", tmp_path / "j.xml", *more)
    assert result.exit_code == 0, result.stderr
    report = json.loads(result.stdout)
    assert report["load"]["answered"] == report["load"]["requests"] == 3 and report["load"]["tokens"] == 18
    assert report["isolation"]["requests"] == 32 and report["fuzz"]["fatal"] is None and report["faults"] == []
    assert json.loads((tmp_path / "r" / "report.json").read_text(encoding="utf-8")) == report
    assert ElementTree.parse(tmp_path / "j.xml").getroot().get("failures") == "0"


def test_a_table_for_people(server, prompts_file: Path) -> None:
    result = verify(f"{server.http}/v1", prompts_file)
    assert result.exit_code == 0 and "inter-token latency, ms" in result.stdout and "no fault found" in result.stdout


def test_requests_that_fail_are_shown_and_exit_with_4(server, prompts_file: Path) -> None:
    server.behaviour.refuse = "둘"
    result = verify(f"{server.http}/v1", prompts_file)
    assert result.exit_code == 4 and "1 of 3 requests were not answered: HTTP 400" in result.stderr
    assert "2 of 3 answered, 1 failed" in result.stdout


def test_nothing_answered_is_no_measurement(server, prompts_file: Path) -> None:
    server.behaviour.refuse = "r"
    prompts_file.write_text('{"text": "first"}\n{"text": "third"}', encoding="utf-8")
    result = verify(f"{server.http}/v1", prompts_file)
    assert result.exit_code == 1 and "None of 2 requests" in result.stderr and "refused" in result.stderr


def test_b113_a_silent_server_behind_an_odd_prompt(server, prompts_file: Path) -> None:
    server.behaviour.hang_on = "<|eot_id|>"
    result = verify(f"{server.http}/v1", prompts_file, "--timeout", 0.5)
    assert result.exit_code == 4 and "'special-tokens' takes the server down" in result.stderr


def test_b105_one_timeout_flag_for_all(server, prompts_file: Path) -> None:
    server.behaviour.first_s = 0.3
    short = verify(f"{server.http}/v1", prompts_file, "--timeout", 0.1)
    assert short.exit_code == 1 and "total timeout 0.1 s: no response after 0.1 s" in short.stderr
    server.behaviour.first_s = 0.02
    assert verify(f"{server.http}/v1", prompts_file, "--timeout", "none").exit_code == 0
    assert verify(f"{server.http}/v1", prompts_file, "--timeout", "soon").exit_code == 2


def test_a_wrong_model_exits_with_2(server, prompts_file: Path) -> None:
    result = verify(f"{server.http}/v1", prompts_file, "--model", "gpt")
    assert result.exit_code == 2 and "serves no model 'gpt' (it has: ensemble)" in result.stderr
