"""Servers of the tiny pair that several modules share, how to ask them, and ports for those that tests start."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from functools import cache
from pathlib import Path
from typing import Any, Protocol

import pytest

from trt_spec.build.run import BuildOptions, run_build
from trt_spec.deploy.deployment import Deployment, EngineDeployment
from trt_spec.deploy.host.launch import LaunchOptions, running_triton
from trt_spec.deploy.host.ports import find_free_ports
from trt_spec.deploy.host.server import RunningServer
from trt_spec.deploy.repository import write_repository
from trt_spec.deploy.workspace import deploy_workspace, resolve_launch
from trt_spec.plan.workspace import Workspace
from trt_spec.serve.contract import STREAMING_MODEL, UNARY_MODEL
from trt_spec.spec.model import Serve, Spec

LIMITS = {"max_batch_size": 4, "max_input_len": 64, "max_output_len": 60}


@pytest.fixture
def free_ports() -> dict[str, int]:
    """Three ports of this machine that nobody listens on, by the name of their spec field."""
    return find_free_ports()


@pytest.fixture(scope="session")
def deploy_spec(tmp_path_factory: pytest.TempPathFactory, tiny_models: Path) -> Callable[..., Workspace]:
    """deploy_spec(**sections) -> the workspace of a spec of the tiny target, built and deployed as a user would."""
    cache_dir = tmp_path_factory.mktemp("cache")

    def deploy(**sections: dict[str, Any]) -> Workspace:
        root = tmp_path_factory.mktemp("spec")
        target = {"model": str(tiny_models / "target")}
        spec = Spec.model_validate({"name": "tiny", "backend": "onnx", "target": target, "limits": LIMITS, **sections})
        place = Workspace(root / "작업 work")
        run_build(BuildOptions(spec, place, cache_dir=cache_dir), lambda _text, _fraction: None)
        deploy_workspace(place, spec)
        return place

    return deploy


@pytest.fixture(scope="session")
def served(deploy_spec: Callable[..., Workspace], tiny_models: Path) -> Iterator[RunningServer]:
    """The tiny pair, built, deployed and served; every round drafts, for an adaptive length may draft nothing here."""
    draft, speculation = {"model": str(tiny_models / "draft")}, {"max_draft_len": 4, "adaptive": False}
    place = deploy_spec(draft=draft, speculation=speculation)
    with running_triton(resolve_launch(place.root, None, find_free_ports())) as server:
        yield server


@pytest.fixture(scope="session")
def tiny_deployment(build_tiny_engine: Callable[..., Path]) -> Callable[..., Deployment]:
    """tiny_deployment(version, target=, draft=, **changes) -> the tiny pair, for the templates of a version.

    ``target`` and ``draft`` are engine folders; without them those of build_tiny_engine are taken.
    """

    def deployment(
        version: str = "1.2.1", target: Path | None = None, draft: Path | None = None, **changes: Any
    ) -> Deployment:
        target, draft = target or build_tiny_engine("pair-target"), draft or build_tiny_engine("pair-draft")
        pair = {
            "name": "tiny pair",
            "id": "0123",
            "target": EngineDeployment(str(target), target, kv_cache_tokens=512),
            "draft": EngineDeployment(str(draft), draft, kv_cache_tokens=512),
            "tokenizer_dir": target,
            "max_draft_len": 4,
            "max_input_len": 64,
            "max_output_len": 32,
            "max_seq_len": 128,
            "max_batch_size": 4,
            "vocab_size": 320,
            "draft_vocab_size": 320,
        }
        return Deployment(tensorrt_llm=version, **{**pair, **changes})

    return deployment


@pytest.fixture(scope="session")
def serving() -> Callable[[Path], AbstractContextManager[RunningServer]]:
    """serving(repository) -> a context with its server, which keeps its files beside the repository."""

    def serve(repository: Path) -> AbstractContextManager[RunningServer]:
        ports = Serve(**find_free_ports())
        return running_triton(LaunchOptions(repository, repository.parent, serve=ports, timeout_s=120))

    return serve


@pytest.fixture(scope="session")
def served_in_dialect(
    tmp_path_factory: pytest.TempPathFactory,
    tiny_deployment: Callable[..., Deployment],
    serving: Callable[[Path], AbstractContextManager[RunningServer]],
) -> Iterator[Callable[[str], RunningServer]]:
    """served_in_dialect(version) -> a server of the tiny pair with that version's templates, which runs to the end."""
    with ExitStack() as running:

        @cache
        def serve(version: str) -> RunningServer:
            deployment = tiny_deployment(version, gathers_logits=True)
            folder = tmp_path_factory.mktemp("work space") / "repository"
            return running.enter_context(serving(write_repository(deployment, folder)))

        yield serve


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
