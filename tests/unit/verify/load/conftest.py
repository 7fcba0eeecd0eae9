"""A stand-in for LLM servers (tests/standins/llm_server.py) and one way to run a load on it."""

from __future__ import annotations

import asyncio
import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from trt_spec.verify.load.arrival import Bounds, ClosedLoop
from trt_spec.verify.load.deadline import Deadline
from trt_spec.verify.load.request import LoadRequest
from trt_spec.verify.load.run import run_load

STANDIN = Path(__file__).parents[3] / "standins" / "llm_server.py"


def load_standin():
    name = "standin_llm_server"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, STANDIN)
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    return sys.modules[name]


@pytest.fixture(scope="session")
def started_server() -> Iterator:
    server = load_standin().LlmServer()
    yield server
    server.stop()


@pytest.fixture
def llm_server(started_server):
    """The stand-in with its default behaviour."""
    vars(started_server.behaviour).update(vars(load_standin().Behaviour()))
    return started_server


@pytest.fixture(params=["grpc", "http", "completions", "chat"])
def any_url(request, llm_server) -> str:
    """The address of the same server, in each protocol."""
    return {
        "grpc": llm_server.grpc,
        "http": llm_server.http,
        "completions": f"{llm_server.http}/v1",
        "chat": f"{llm_server.http}/v1/chat/completions",
    }[request.param]


def make_requests(count: int = 1, text: str = "say", max_tokens: int = 5, **fields) -> list[LoadRequest]:
    return [LoadRequest(f"r{index}", "chat", f"{text} {index}", max_tokens, **fields) for index in range(count)]


def drive(endpoint, requests, arrival=None, bounds=None, deadline=None, count_tokens=None):
    """Opens the endpoint, runs the load, closes it."""

    async def run():
        await endpoint.open()
        try:
            return await run_load(
                endpoint,
                requests,
                arrival or ClosedLoop(1),
                bounds or Bounds(max_requests=len(requests)),
                deadline or Deadline(total_s=20),
                count_tokens,
            )
        finally:
            await endpoint.close()

    return asyncio.run(run())


@pytest.fixture
def load():
    return drive


@pytest.fixture
def requests_of():
    return make_requests
