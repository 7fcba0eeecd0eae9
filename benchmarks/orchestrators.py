"""NVIDIA's draft-target loop and ours in one server, on the same local engines: tokens/s, and what a round costs.

    python benchmarks/orchestrators.py --nvidia FOLDER [WORKSPACE] [--rounds 7] [--environment FOLDER] [--json FILE]

FOLDER is all_models/inflight_batcher_llm of tensorrtllm_backend v0.18.2, unchanged. The workspace must hold built
engines of a pair; by default it is the demo's. Both loops answer greedily with the same number of tokens, and must say
the same. They take turns, the first one changes with every round; printed are medians, and of ratios the median of the
rounds' ratios, because a shared machine's speed drifts.

The overhead of a round is the time between two engine calls of one request: from the answer that one engine has
computed to the other one having the next request, twice a round. Text, tokenizer and HTTP are not in it.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from nvidia_loop import NVIDIA_MODEL, add_nvidia_loop, make_environment
from prompts import CHAT, PROMPTS

from trt_spec.cli.demo import demo_workspace
from trt_spec.deploy.deployment import Deployment
from trt_spec.deploy.host.launch import LaunchOptions, running_triton
from trt_spec.deploy.host.ports import find_free_ports
from trt_spec.deploy.host.triton import LOCAL_BACKEND, find_triton, write_backends
from trt_spec.deploy.repository import write_repository
from trt_spec.deploy.resolve import resolve_deployment
from trt_spec.plan.manifest import load_manifest
from trt_spec.plan.workspace import Workspace
from trt_spec.serve.contract import DRAFT_MODEL, TARGET_MODEL, UNARY_MODEL
from trt_spec.spec.model import Serve
from trt_spec.util.cache import resolve_cache_dir

NVIDIA_VERSION = "0.18.2"
NEW_TOKENS = 128
DRAFT_TOKENS = (2, 4, 6)
CONCURRENCY = 8
CONCURRENT_DRAFT_TOKENS = 4
ATTEMPT_S = 600.0
OURS, THEIRS = "trtspec", "NVIDIA"
LOOPS = {OURS: UNARY_MODEL, THEIRS: NVIDIA_MODEL}


@dataclass(frozen=True)
class Server:
    """A running server of both loops, and where its engines write down their calls."""

    url: str
    trace: Path

    def ask(self, loop: str, text: str, draft_tokens: int | None, tokens: int = NEW_TOKENS) -> str:
        """The answer without the prompt; ``draft_tokens`` None leaves the length to the orchestrator."""
        prompt = CHAT.format(text)
        body: dict[str, Any] = {
            "text_input": prompt,
            "max_tokens": tokens,
            "end_id": -1,  # the whole length, whatever the model says
            "stream": False,
            "exclude_input_in_output": loop == OURS,  # NVIDIA's loop goes on from the output
        }
        if draft_tokens is not None:
            body["num_draft_tokens"] = draft_tokens
        request = urllib.request.Request(f"{self.url}/v2/models/{LOOPS[loop]}/generate", json.dumps(body).encode())
        with urllib.request.urlopen(request, timeout=ATTEMPT_S) as answer:
            said = str(json.load(answer)["text_output"])
        # Special tokens of the chat template are not in NVIDIA's text.
        return said if loop == OURS else said.split("assistant\n", 1)[1]

    def calls(self) -> dict[str, list[tuple[int, int]]]:
        """(arrival, answer) of every engine call so far, nanoseconds, by role."""
        files = {"draft": self.trace / DRAFT_MODEL, "target": self.trace / TARGET_MODEL}
        return {role: read_calls(file) for role, file in files.items()}


def read_calls(file: Path) -> list[tuple[int, int]]:
    rows = np.fromfile(file, np.int64).reshape(-1, 2)
    return [(arrival, answer) for arrival, answer in rows[rows[:, 1] > 0].tolist()]


@contextmanager
def serve(place: Workspace, templates: Path, environment: Path) -> Iterator[Server]:
    """Both loops over the workspace's engines."""
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        deployment = widen(resolve_deployment(load_manifest(place), place), root / "target")
        repository = write_repository(deployment, root / "repository")
        add_nvidia_loop(
            repository,
            templates,
            environment,
            tokenizer=place.engine("target"),
            target=TARGET_MODEL,
            draft=DRAFT_MODEL,
            batch=deployment.max_batch_size,
        )
        backends = write_backends(find_triton(), root / "backends")
        shutil.copyfile(Path(__file__).with_name("traced_engine.py"), backends / LOCAL_BACKEND / "model.py")
        trace = root / "trace"
        trace.mkdir()
        os.environ["TRTSPEC_TRACE_FOLDER"] = str(trace)
        options = LaunchOptions(repository, root / "server", Serve(**find_free_ports()), backends=backends)
        with running_triton(options) as server:
            yield Server(server.http_url, trace)


def widen(deployment: Deployment, folder: Path) -> Deployment:
    """The same engines behind NVIDIA_VERSION's tensors, with a target that takes the longest of DRAFT_TOKENS.

    The graph of a local engine knows no draft length, only its config.json does.
    """
    source = Path(deployment.target.path)
    folder.mkdir()
    for file in source.iterdir():
        (folder / file.name).symlink_to(file)
    config = json.loads((source / "config.json").read_text(encoding="utf-8"))
    config["build_config"]["max_draft_len"] = max(DRAFT_TOKENS)
    (folder / "config.json").unlink()
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    target = replace(deployment.target, path=str(folder), folder=folder)
    return replace(deployment, tensorrt_llm=NVIDIA_VERSION, target=target, max_draft_len=max(DRAFT_TOKENS))


def overheads_ms(before: dict[str, list[Any]], after: dict[str, list[tuple[int, int]]]) -> list[float]:
    """Milliseconds between engine calls, of every whole round of the one request that ran between two looks."""
    calls = [(*call, role) for role in after for call in after[role][len(before[role]) :]]
    calls.sort()
    gaps = {"draft": 0.0, "target": 0.0}  # before the draft's and before the target's call
    found = []
    for (_, answered_ns, _), (arrival_ns, _, role) in pairwise(calls):
        gaps[role] = (arrival_ns - answered_ns) / 1e6
        if role == "target":
            found.append(gaps["draft"] + gaps["target"])
    return found[1:]  # the first round has no call before it


@dataclass
class Rounds:
    """Figures of every round by line; and milliseconds of overhead by loop."""

    tokens_per_s: dict[str, list[float]]
    overhead_ms: dict[str, list[float]]


def measure_one(server: Server, loop: str, text: str, draft_tokens: int, found: Rounds) -> tuple[float, str]:
    before = server.calls()
    started = time.perf_counter()
    said = server.ask(loop, text, draft_tokens)
    rate = NEW_TOKENS / (time.perf_counter() - started)
    found.overhead_ms.setdefault(f"{loop}, {draft_tokens} drafted", []).extend(overheads_ms(before, server.calls()))
    return rate, said


def measure_many(server: Server, loop: str, draft_tokens: int | None) -> float:
    started = time.perf_counter()
    with ThreadPoolExecutor(CONCURRENCY) as pool:
        list(pool.map(lambda text: server.ask(loop, text, draft_tokens), PROMPTS))
    return NEW_TOKENS * len(PROMPTS) / (time.perf_counter() - started)


def measure_round(server: Server, number: int, found: Rounds) -> None:
    """Every line once; who begins changes with the round."""
    text = PROMPTS[number % len(PROMPTS)]
    loops = list(LOOPS) if number % 2 else list(LOOPS)[::-1]
    server.ask(OURS, text, 1, 2)  # whoever begins does not read the prompt for the others
    for draft_tokens in DRAFT_TOKENS:
        said = {}
        for loop in loops:
            rate, said[loop] = measure_one(server, loop, text, draft_tokens, found)
            found.tokens_per_s.setdefault(f"{loop}, 1 request, {draft_tokens} drafted", []).append(rate)
        if said[OURS] != said[THEIRS]:
            raise SystemExit(f"the answers differ:\n{said[OURS]!r}\n{said[THEIRS]!r}")
    fixed = CONCURRENT_DRAFT_TOKENS
    lines: list[tuple[str, Callable[[], float]]] = [
        (f"{loop}, {CONCURRENCY} requests, {fixed} drafted", lambda loop=loop: measure_many(server, loop, fixed))
        for loop in loops
    ]
    lines.append((f"{OURS}, {CONCURRENCY} requests, own choice", lambda: measure_many(server, OURS, None)))
    for line, measure in lines:
        found.tokens_per_s.setdefault(line, []).append(measure())


def ratio_lines() -> list[tuple[str, str]]:
    """Which lines are compared: ours over NVIDIA's."""
    many = f"{CONCURRENCY} requests"
    fixed = f"{many}, {CONCURRENT_DRAFT_TOKENS} drafted"
    return [
        *((f"{OURS}, 1 request, {n} drafted", f"{THEIRS}, 1 request, {n} drafted") for n in DRAFT_TOKENS),
        (f"{OURS}, {fixed}", f"{THEIRS}, {fixed}"),
        (f"{OURS}, {many}, own choice", f"{THEIRS}, {fixed}"),
    ]


def print_lines(title: str, lines: dict[str, list[float]], digits: int) -> None:
    print(f"\n{title}, median (smallest to largest)")
    for name, found in sorted(lines.items()):
        middle, low, high = (f"{value:.{digits}f}" for value in (statistics.median(found), min(found), max(found)))
        print(f"  {name:64} {middle:>9}   ({low} to {high})")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workspace", type=Path, nargs="?", default=demo_workspace())
    parser.add_argument("--nvidia", type=Path, required=True, help="all_models/inflight_batcher_llm of v0.18.2")
    parser.add_argument("--environment", type=Path, default=resolve_cache_dir() / "nvidia-loop")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    found = Rounds({}, {})
    environment = make_environment(options.environment.absolute())
    with serve(Workspace(options.workspace.absolute()), options.nvidia.absolute(), environment) as server:
        for number in range(options.rounds + 1):
            measure_round(server, number, found if number else Rounds({}, {}))  # the first one warms everything up
            print(f"round {number} of {options.rounds}", flush=True)
    ratios = {
        f"{a} / {b}": [x / y for x, y in zip(found.tokens_per_s[a], found.tokens_per_s[b], strict=True)]
        for a, b in ratio_lines()
    }
    print_lines("tokens/s", found.tokens_per_s, 1)
    print_lines("ms of a round outside the engines", found.overhead_ms, 2)
    print_lines("ratio within a round", ratios, 2)
    if options.json:
        document = {"new_tokens": NEW_TOKENS, "cpus": os.cpu_count(), "ratios": ratios, **vars(found)}
        options.json.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
