"""How long as many rounds at once take as an orchestrator admits, against engines that only wait.

    python benchmarks/concurrent_rounds.py [WORKSPACE] [--requests 64] [--delay 0.5] [--repeats 5]

The target answers each call after the delay, the draft at once; every request is one round of two drafted tokens. What
the whole takes beyond the delay is the orchestrator's, Triton's and the client's. The workspace must hold the built
engines of a pair, of which only the description is used; by default it is the demo's.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import tempfile
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import tritonclient.grpc as grpcclient

from trt_spec.cli.demo import demo_workspace
from trt_spec.deploy.host.launch import LaunchOptions, running_triton
from trt_spec.deploy.host.ports import find_free_ports
from trt_spec.deploy.pbtxt import parse_pbtxt, render_pbtxt
from trt_spec.deploy.repository import write_repository
from trt_spec.deploy.resolve import resolve_deployment
from trt_spec.plan.manifest import load_manifest
from trt_spec.plan.workspace import Workspace
from trt_spec.serve.contract import DRAFT_MODEL, TARGET_MODEL, UNARY_MODEL
from trt_spec.spec.model import Serve

ENGINE = Path(__file__).parents[1] / "tests" / "standins" / "waiting_engine" / "model.py"
DRAFT_TOKENS = 2


def write_waiting_repository(place: Workspace, folder: Path, requests: int, delay_s: float) -> Path:
    """The workspace's repository for ``requests`` at a time, with engines that only wait."""
    deployment = resolve_deployment(load_manifest(place), place)
    repository = write_repository(replace(deployment, max_batch_size=requests), folder)
    for model, delay in ((TARGET_MODEL, delay_s), (DRAFT_MODEL, 0.0)):
        file = repository / model / "config.pbtxt"
        config = replace(parse_pbtxt(file.read_text(encoding="utf-8")), backend="python")
        config = replace(config, parameters={"calls": "1", "delay_s": str(delay)})
        file.write_text(render_pbtxt(config), encoding="utf-8")
        shutil.copyfile(ENGINE, repository / model / "1" / "model.py")
    return repository


def text_inputs() -> list[Any]:
    given = {"text_input": b"hello", "max_tokens": DRAFT_TOKENS + 1, "num_draft_tokens": DRAFT_TOKENS}
    inputs = []
    for name, value in given.items():
        tensor = grpcclient.InferInput(name, [1, 1], "BYTES" if isinstance(value, bytes) else "INT32")
        tensor.set_data_from_numpy(np.array([[value]], np.object_ if isinstance(value, bytes) else np.int32))
        inputs.append(tensor)
    return inputs


def measure(client: Any, requests: int) -> float:
    """Seconds until all of ``requests``, sent at once, are answered."""
    answered, failures = threading.Semaphore(0), []

    def note(result: Any, error: Any) -> None:  # called by these names
        if result is None:
            failures.append(error)
        answered.release()

    inputs = text_inputs()
    started = time.perf_counter()
    for _ in range(requests):
        client.async_infer(UNARY_MODEL, inputs, note)
    for _ in range(requests):
        answered.acquire()
    seconds = time.perf_counter() - started
    if failures:
        raise SystemExit(f"{len(failures)} of {requests} requests failed, the first: {failures[0]}")
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workspace", type=Path, nargs="?", default=demo_workspace())
    parser.add_argument("--requests", type=int, default=64)
    parser.add_argument("--delay", type=float, default=0.5)
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        root, place = Path(name), Workspace(options.workspace.absolute())
        repository = write_waiting_repository(place, root / "repository", options.requests, options.delay)
        launch = LaunchOptions(repository, root / "server", Serve(**find_free_ports()))
        with running_triton(launch) as server, grpcclient.InferenceServerClient(server.grpc_url) as client:
            measure(client, options.requests)  # warms everything up
            found = [measure(client, options.requests) for _ in range(options.repeats)]
    print(
        f"{options.requests} rounds at once, target {options.delay:g} s: {statistics.median(found):.3f} s "
        f"({min(found):.3f} to {max(found):.3f})"
    )


if __name__ == "__main__":
    main()
