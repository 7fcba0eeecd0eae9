"""What the OpenAI endpoint adds to direct gRPC: time to first token, processor time a token, and what it leaks.

    python benchmarks/openai_endpoint.py --grpc HOST:PORT --http http://HOST:PORT --pid PID --model NAME

against a running `trtspec serve SPEC --openai-port PORT`; PID is the endpoint's process (openai_pid in server.json).
Direct and endpoint requests alternate, so that a machine's moods hit both. The processor time is that of the endpoint's
process, whole requests of --tokens tokens divided by their tokens, and by their chunks: a chunk carries what a round of
speculation accepted, or what the target alone said in one call.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import time
from pathlib import Path

import aiohttp

from trt_spec.openai.triton_connection import TritonConnection

TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS_PER_S


def memory_kib(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmRSS")).split()[1])


def open_files(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


async def ask_direct(
    connection: TritonConnection, prompt: str, tokens: int, extra: dict[str, int]
) -> tuple[float, str]:
    """Seconds to the first text, and the answer."""
    values = {"text_input": prompt, "max_tokens": tokens, "top_k": 1, "stream": True, "return_perf_metrics": True}
    begun, first, text = time.perf_counter(), 0.0, ""
    async for piece in connection.generate("direct", values | {"exclude_input_in_output": True} | extra):
        text += piece.text
        if text and not first:
            first = time.perf_counter() - begun
    return first, text


async def ask_endpoint(
    session: aiohttp.ClientSession, model: str, prompt: str, tokens: int, extra: dict[str, int]
) -> tuple[float, str, int]:
    """Seconds to the first text, the answer, and its chunks."""
    body = {"model": model, "prompt": prompt, "max_tokens": tokens, "temperature": 0, "stream": True, **extra}
    begun, first, text, chunks = time.perf_counter(), 0.0, "", 0
    async with session.post("/v1/completions", json=body) as answer:
        answer.raise_for_status()
        async for line in answer.content:
            if not line.startswith(b"data: {"):
                continue
            chunks += 1
            text += json.loads(line[6:])["choices"][0]["text"]
            if text and not first:
                first = time.perf_counter() - begun
    return first, text, chunks


async def first_tokens(
    connection: TritonConnection, session: aiohttp.ClientSession, arguments: argparse.Namespace
) -> dict[str, float]:
    direct, through = [], []
    for number in range(arguments.rounds):
        prompt = f"hello {number % 7}"
        direct.append((await ask_direct(connection, prompt, 2, {}))[0])
        through.append((await ask_endpoint(session, arguments.model, prompt, 2, {}))[0])
    pairs = [b - a for a, b in zip(direct, through, strict=True)]
    return {
        "direct_ms": 1e3 * statistics.median(direct),
        "endpoint_ms": 1e3 * statistics.median(through),
        "added_ms": 1e3 * statistics.median(pairs),
    }


async def streamed_cost(
    session: aiohttp.ClientSession, arguments: argparse.Namespace, at_once: int, extra: dict[str, int]
) -> dict[str, float]:
    tokens, chunks = 0, 0
    before = cpu_seconds(arguments.pid)
    while cpu_seconds(arguments.pid) - before < arguments.cpu_seconds:
        asked = [
            ask_endpoint(session, arguments.model, f"hello {number}", arguments.tokens, {"ignore_eos": True, **extra})
            for number in range(at_once)
        ]
        answers = await asyncio.gather(*asked)
        tokens += arguments.tokens * at_once
        chunks += sum(answer[2] for answer in answers)
    spent = cpu_seconds(arguments.pid) - before
    return {"ms_a_token": 1e3 * spent / tokens, "ms_a_chunk": 1e3 * spent / chunks, "tokens_a_chunk": tokens / chunks}


async def many_streams(
    connection: TritonConnection, session: aiohttp.ClientSession, arguments: argparse.Namespace
) -> bool:
    prompts = [f"{number} hello" for number in range(64)]
    expected = [(await ask_direct(connection, prompt, arguments.tokens, {}))[1] for prompt in prompts]
    asked = [ask_endpoint(session, arguments.model, prompt, arguments.tokens, {}) for prompt in prompts]
    return [answer[1] for answer in await asyncio.gather(*asked)] == expected


async def leave_again_and_again(session: aiohttp.ClientSession, arguments: argparse.Namespace) -> dict[str, float]:
    """Clients that connect, ask and leave at the first byte; files and memory of the endpoint before and after."""
    host, port = arguments.http.removeprefix("http://").split(":")
    body = json.dumps(
        {"model": arguments.model, "prompt": "hello", "max_tokens": arguments.tokens, "stream": True}
    ).encode()
    head = f"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n".encode()

    async def leave() -> None:
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(head + body)
        await reader.read(1)
        writer.close()

    async def cycle(count: int) -> None:
        for _ in range(count // 8):
            await asyncio.gather(*(leave() for _ in range(8)))
        while "in_flight 0.0" not in await (await session.get("/metrics")).text():
            await asyncio.sleep(0.1)

    await cycle(arguments.cycles // 5)  # caches fill, pools grow
    files, memory = open_files(arguments.pid), memory_kib(arguments.pid)
    await cycle(arguments.cycles)
    return {
        "cycles": arguments.cycles,
        "files_before": files,
        "files_after": open_files(arguments.pid),
        "added_kib": memory_kib(arguments.pid) - memory,
    }


async def measure(arguments: argparse.Namespace) -> dict[str, object]:
    connection = TritonConnection(arguments.grpc, 120.0)
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(arguments.http, connector=connector) as session:
        result: dict[str, object] = {"first_token": await first_tokens(connection, session, arguments)}
        print("first token:", result["first_token"], flush=True)
        for at_once in (1, 8):
            for name, extra in (("drafted", {}), ("target alone", {"num_draft_tokens": 0})):
                key = f"processor time, {at_once} at once, {name}"
                result[key] = await streamed_cost(session, arguments, at_once, extra)
                print(f"{key}:", result[key], flush=True)
        result["64 streams right"] = await many_streams(connection, session, arguments)
        print("64 streams right:", result["64 streams right"], flush=True)
        result["leaving"] = await leave_again_and_again(session, arguments)
        print("leaving:", result["leaving"], flush=True)
    await connection.close()
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--grpc", required=True)
    parser.add_argument("--http", required=True)
    parser.add_argument("--pid", required=True, type=int)
    parser.add_argument("--model", required=True)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--tokens", type=int, default=48)
    parser.add_argument("--cpu-seconds", type=float, default=2.0, help="processor time of the endpoint for each figure")
    parser.add_argument("--cycles", type=int, default=1000)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    result = asyncio.run(measure(arguments))
    if arguments.json:
        arguments.json.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
