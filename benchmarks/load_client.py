"""What verify's load client costs and how true it measures: a stand-in server sends a token every 20 ms.

    python benchmarks/load_client.py [--concurrency 8] [--requests 24] [--tokens 100] [--rounds 3]

Prints, by protocol, milliseconds of CPU time of the client a message, and the measured inter-token latency over the
true one. The server runs in a process of its own.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
import time
from pathlib import Path
from statistics import median

from trt_spec.verify.load.address import resolve_endpoint
from trt_spec.verify.load.arrival import Bounds, ClosedLoop
from trt_spec.verify.load.deadline import Deadline
from trt_spec.verify.load.request import LoadRequest
from trt_spec.verify.load.run import run_load
from trt_spec.verify.summary import summarise_load

STANDIN = Path(__file__).parents[1] / "tests" / "standins" / "llm_server.py"
TOKEN_S = 0.02


async def measure(url: str, given: argparse.Namespace) -> tuple[float, float, float]:
    """CPU ms a message, inter-token latency and time to first token, both over the true 20 ms."""
    endpoint = resolve_endpoint(url)
    await endpoint.open()
    requests = [LoadRequest(f"r{n}", "chat", "say", given.tokens) for n in range(given.requests)]
    cpu = time.process_time()
    result = await run_load(
        endpoint, requests, ClosedLoop(given.concurrency), Bounds(len(requests)), Deadline(total_s=60)
    )
    cpu = time.process_time() - cpu
    await endpoint.close()
    summary = summarise_load(result)
    messages = sum(len(item.message_s) for item in result.requests)
    assert summary.answered == given.requests and summary.inter_token_latency_s and summary.time_to_first_token_s
    return (
        1000 * cpu / messages,
        summary.inter_token_latency_s.mean / TOKEN_S,
        summary.time_to_first_token_s.p50 / TOKEN_S,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--concurrency", type=int, default=8)
    parser.add_argument("--requests", type=int, default=24)
    parser.add_argument("--tokens", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    command = [sys.executable, str(STANDIN), "--token-s", str(TOKEN_S), "--first-s", str(TOKEN_S)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout and server.stdin
        urls = json.loads(server.stdout.readline())
        kinds = {
            "Triton gRPC": urls["grpc"],
            "Triton HTTP": urls["http"],
            "OpenAI completions": urls["http"] + "/v1",
            "OpenAI chat": urls["http"] + "/v1/chat/completions",
        }
        rows: dict[str, list[tuple[float, float, float]]] = {kind: [] for kind in kinds}
        for _ in range(given.rounds):
            for kind, url in kinds.items():
                rows[kind].append(asyncio.run(measure(url, given)))
        server.stdin.close()
    print(f"{'':20} {'CPU ms/message':>15} {'ITL / true':>11} {'TTFT / true':>12}   (medians of {given.rounds})")
    for kind, measured in rows.items():
        cpu, itl, ttft = (median(column) for column in zip(*measured, strict=True))
        print(f"{kind:20} {cpu:15.3f} {itl:11.3f} {ttft:12.3f}")


if __name__ == "__main__":
    main()
