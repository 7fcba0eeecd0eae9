"""Servers of the tiny pair that several modules share, how to ask them, and ports for those that tests start."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

import pytest

from trt_spec.build.run import BuildOptions, run_build
from trt_spec.deploy.host.launch import running_triton
from trt_spec.deploy.host.ports import find_free_ports
from trt_spec.deploy.host.server import RunningServer
from trt_spec.deploy.workspace import deploy_workspace, resolve_launch
from trt_spec.plan.workspace import Workspace
from trt_spec.serve.contract import STREAMING_MODEL, UNARY_MODEL
from trt_spec.spec.load import load_spec

MAX_DRAFT_LEN = 4
SPEC = f"""\
name: tiny
backend: onnx
target: {{{{model: {{models}}/target}}}}
draft: {{{{model: {{models}}/draft}}}}
speculation: {{{{max_draft_len: {MAX_DRAFT_LEN}}}}}
limits: {{{{max_batch_size: 4, max_input_len: 64, max_output_len: 60}}}}
"""


@pytest.fixture
def free_ports() -> dict[str, int]:
    """Three ports of this machine that nobody listens on, by the name of their spec field."""
    return find_free_ports()


@pytest.fixture(scope="session")
def served(tmp_path_factory: pytest.TempPathFactory, tiny_models: Path) -> Iterator[RunningServer]:
    """The tiny pair, built, deployed and served as a user would."""
    root = tmp_path_factory.mktemp("served")
    spec_file = root / "tiny.yaml"
    spec_file.write_text(SPEC.format(models=tiny_models))
    place, spec = Workspace(root / "작업 work"), load_spec(spec_file)
    run_build(BuildOptions(spec, place, cache_dir=root / "cache"), lambda _text, _fraction: None)
    deploy_workspace(place, spec)
    with running_triton(resolve_launch(place.root, None, find_free_ports())) as server:
        yield server


class Ask(Protocol):
    def __call__(self, text: str, model: str = UNARY_MODEL, **inputs: Any) -> dict[str, Any]: ...


@pytest.fixture(scope="session")
def post() -> Callable[..., tuple[int, dict[str, Any]]]:
    """post(server, path, body) -> (status, parsed answer); ``body`` is sent as JSON unless it is bytes."""

    def send(server: RunningServer, path: str, body: dict[str, Any] | bytes) -> tuple[int, dict[str, Any]]:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        try:
            with urllib.request.urlopen(f"{server.http_url}/v2/models/{path}", data=data, timeout=60) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            return error.code, json.loads(error.read() or b"{}")

    return send


@pytest.fixture(scope="session")
def ask(served: RunningServer, post: Callable[..., tuple[int, dict[str, Any]]]) -> Ask:
    """ask(text, model, **inputs) -> the answer of `served`, 24 tokens unless said otherwise."""

    def generate(text: str, model: str = UNARY_MODEL, **inputs: Any) -> dict[str, Any]:
        status, answer = post(served, f"{model}/generate", {"text_input": text, "max_tokens": 24, **inputs})
        assert status == 200, answer
        return answer

    return generate


@pytest.fixture(scope="session")
def stream(served: RunningServer) -> Callable[..., list[dict[str, Any]]]:
    """stream(text, **inputs) -> the server-sent events of an answer of `served`, parsed."""

    def events(text: str, **inputs: Any) -> list[dict[str, Any]]:
        body = json.dumps({"text_input": text, "max_tokens": 24, "stream": True, **inputs}).encode()
        url = f"{served.http_url}/v2/models/{STREAMING_MODEL}/generate_stream"
        with urllib.request.urlopen(url, data=body, timeout=60) as answer:
            return [json.loads(line.removeprefix(b"data: ")) for line in answer if line.startswith(b"data: ")]

    return events
