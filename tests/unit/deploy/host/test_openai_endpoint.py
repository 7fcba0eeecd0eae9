"""The endpoint's process beside Triton: what is refused before a start, how it is recorded, judged and ended."""

import importlib.util
import os
import subprocess
import sys
import time
from dataclasses import replace

import pytest

from trt_spec.deploy.host import openai_endpoint
from trt_spec.deploy.host.process_group import read_start_ticks
from trt_spec.deploy.host.server import OPENAI_LOG_FILE, RunningServer, end_server, load_server, write_server
from trt_spec.errors import EnvironmentMissing, StepFailed


@pytest.fixture
def server(tmp_path):
    """A record of a server that is gone, in a workspace of its own."""
    ports = {"http_port": 1, "grpc_port": 2, "metrics_port": 3}
    return RunningServer(
        pid=2**22 - 1,
        start_ticks=1,
        host="127.0.0.1",
        **ports,
        repository=str(tmp_path / "repository"),
        log=str(tmp_path / "triton.log"),
        shm_prefix="trtspec_0123abcd_",
    )


@pytest.fixture
def with_process(server):
    """The record with a process that runs as its endpoint."""
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    yield replace(server, openai_port=9, openai_pid=process.pid, openai_start_ticks=read_start_ticks(process.pid))
    process.kill()
    process.wait()


def test_missing_packages_are_named_before_triton_starts(monkeypatch):
    find = importlib.util.find_spec
    monkeypatch.setattr(openai_endpoint, "find_spec", lambda name: None if name == "uvicorn" else find(name))
    with pytest.raises(EnvironmentMissing, match=r"uvicorn.*pip install 'trtspec\[openai\]'"):
        openai_endpoint.check_endpoint_installed()


def test_the_record_keeps_the_endpoint(with_process, tmp_path):
    write_server(tmp_path, with_process)
    assert load_server(tmp_path) == with_process
    assert with_process.openai_url == "http://127.0.0.1:9"
    write_server(tmp_path, replace(with_process, openai_pid="1; rm"))
    assert load_server(tmp_path) is None


def test_it_is_ended_with_the_server(with_process):
    assert with_process.is_endpoint_alive()
    end_server(with_process, 0.1)
    assert not with_process.is_endpoint_alive()


def test_another_process_with_its_number_is_left_alone(with_process):
    end_server(replace(with_process, openai_start_ticks=1), 0.1)
    assert with_process.is_endpoint_alive()


def test_its_end_is_noticed_with_its_last_words(with_process, server, tmp_path):
    assert openai_endpoint.judge_endpoint(server) is None
    assert openai_endpoint.judge_endpoint(with_process) is None
    (tmp_path / OPENAI_LOG_FILE).write_text("address already in use\n")
    os.kill(with_process.openai_pid, 9)
    deadline = time.monotonic() + 10
    while (failure := openai_endpoint.judge_endpoint(with_process)) is None and time.monotonic() < deadline:
        time.sleep(0.02)
    assert "has ended" in str(failure) and "address already in use" in str(failure)


def test_a_start_that_fails_says_why(server, tmp_path, monkeypatch):
    """There is no repository, which the endpoint itself says."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(StepFailed, match="repository"):
        openai_endpoint.start_endpoint(server, tmp_path, 9)
    assert load_server(tmp_path).openai_pid is not None
