"""How long Triton keeps calls that come together before an engine, by how the model's config.pbtxt queues them.

    python benchmarks/queue_stall.py [WORKSPACE] [--calls 4] [--bursts 300]

The workspace must hold the built engines of a pair; by default it is the demo's. Each burst is so many calls of the
target at once, over gRPC, of two tokens each: without drafts, orchestrators, or anything else that runs. Printed is how
long a burst takes, and how many took a quarter of a second longer than the median: those are calls that waited while
the engine had nothing to do.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from trt_spec.cli.demo import demo_workspace
from trt_spec.deploy.host.launch import LaunchOptions, running_triton
from trt_spec.deploy.host.ports import find_free_ports
from trt_spec.deploy.host.triton import find_triton, write_backends
from trt_spec.deploy.pbtxt import DynamicBatching, parse_pbtxt, render_pbtxt
from trt_spec.deploy.repository import write_repository
from trt_spec.deploy.resolve import resolve_deployment
from trt_spec.plan.manifest import load_manifest
from trt_spec.plan.workspace import Workspace
from trt_spec.serve.contract import TARGET_MODEL
from trt_spec.spec.model import Serve
from trt_spec.verify.client import TritonClient

WAYS = {
    "no dynamic_batching": None,
    "dynamic_batching": DynamicBatching(),
    "dynamic_batching with max_queue_size 256": DynamicBatching(max_queue_size=256),
}
STALL_S = 0.25
ATTEMPT_S = 60.0


@contextmanager
def served(place: Workspace, batching: DynamicBatching | None) -> Iterator[str]:
    """The gRPC address of a server of the workspace's engines, whose target queues calls in this way."""
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        repository = write_repository(resolve_deployment(load_manifest(place), place), root / "repository")
        file = repository / TARGET_MODEL / "config.pbtxt"
        config = parse_pbtxt(file.read_text(encoding="utf-8"))
        file.write_text(render_pbtxt(replace(config, dynamic_batching=batching)), encoding="utf-8")
        backends = write_backends(find_triton(), root / "backends")
        options = LaunchOptions(repository, root / "server", Serve(**find_free_ports()), backends=backends)
        with running_triton(options) as server:
            yield server.grpc_url


def measure(address: str, calls: int, bursts: int) -> list[float]:
    """Seconds of each burst."""
    seconds = []
    with TritonClient(address, deadline_s=ATTEMPT_S) as client, ThreadPoolExecutor(calls) as pool:

        def ask(tokens: int) -> tuple[int, ...]:
            return client.generate_from_ids(TARGET_MODEL, range(5, 5 + tokens), 2, (), label=f"{tokens} ids")

        for _ in range(bursts + 1):
            started = time.perf_counter()
            list(pool.map(ask, range(20, 20 + calls)))
            seconds.append(time.perf_counter() - started)
    return seconds[1:]  # the first one reads the prompts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workspace", type=Path, nargs="?", default=demo_workspace())
    parser.add_argument("--calls", type=int, default=4)
    parser.add_argument("--bursts", type=int, default=300)
    options = parser.parse_args()
    print(f"{options.bursts} bursts of {options.calls} calls: ms, median (largest); bursts with a stall")
    for name, batching in WAYS.items():
        with served(Workspace(options.workspace.absolute()), batching) as address:
            seconds = measure(address, options.calls, options.bursts)
        middle = statistics.median(seconds)
        stalls = sum(each > middle + STALL_S for each in seconds)
        print(f"  {name:42} {1e3 * middle:6.0f} ({1e3 * max(seconds):.0f}) {stalls:6}", flush=True)


if __name__ == "__main__":
    main()
