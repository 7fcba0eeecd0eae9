"""The local engine alone, without Triton: tokens/s by concurrency, plain and speculative, and where a step's time goes.

    python benchmarks/local_engine.py [WORKSPACE] [--rounds N] [--json FILE]
    python benchmarks/local_engine.py [WORKSPACE] --arrival [--rounds N]
    python benchmarks/local_engine.py [WORKSPACE] --memory REQUESTS

The workspace must hold built engines of a pair; by default it is the demo's. Everything runs in one process, each round
measures every line once, in turn; printed are medians over the rounds, and of ratios the median of the rounds' ratios,
because a shared machine's speed drifts. ``--arrival`` measures the gaps of a running stream while a prompt of 1,000
tokens arrives, ``--memory 2000`` the resident size while the target serves so many mixed requests, and nothing else.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from engine_under_load import measure_arrival, measure_memory
from prompts import CHAT, PROMPTS

from trt_spec.cli.demo import demo_workspace
from trt_spec.plan.workspace import Workspace
from trt_spec.serve.acceptance import count_accepted
from trt_spec.serve.local_backend.batcher import Batcher, Job, Outcome
from trt_spec.serve.local_backend.engine import Engine
from trt_spec.serve.local_backend.feed import Piece
from trt_spec.serve.local_backend.sequence import GenerateRequest
from trt_spec.serve.tokens import TextTokenizer

NEW_TOKENS = 128
DRAFT_LEN = 4
CONCURRENCY = (1, 2, 4, 8)
PASTS = (100, 300, 700)
STEP_REPEATS = 5


class TimedSession:
    """Adds up the seconds inside ONNX Runtime."""

    def __init__(self, session: Any) -> None:
        self._session = session
        self.seconds = 0.0

    def run_with_iobinding(self, binding: Any) -> None:
        started = time.perf_counter()
        self._session.run_with_iobinding(binding)
        self.seconds += time.perf_counter() - started


@dataclass
class Rate:
    """One measurement: tokens a second of all requests together, and what of the time was not ONNX Runtime's."""

    tokens_per_s: float
    overhead_fraction: float
    tokens_a_round: float = 1.0


def run_plain(engine: Engine, prompts: list[list[int]]) -> Rate:
    """All prompts at once; greedy, NEW_TOKENS each. Rates leave the first tokens out: they are the prompts' cost."""
    told: list[int] = []  # tokens of each result

    def count(outcome: Outcome) -> None:
        if isinstance(outcome, Exception):
            raise outcome
        told.append(len(outcome.new_ids))

    batcher = Batcher(engine)
    for ids in prompts:
        batcher.submit(Job(GenerateRequest(ids, NEW_TOKENS, streams=True), count, deliver_part=count))
    for _ in prompts:  # prompts are shorter than a chunk, so now every one has its first token
        batcher.step()
    timed, first = start_timer(engine), sum(told)
    started = time.perf_counter()
    while not batcher.is_idle:
        batcher.step()
    seconds = time.perf_counter() - started
    return Rate((sum(told) - first) / seconds, 1 - timed.seconds / seconds)


def run_speculative(draft: Engine, target: Engine, prompts: list[list[int]]) -> Rate:
    """As the orchestrator drives both engines: each request drafts, verifies and goes on, whenever it is its turn."""
    batchers = {"draft": Batcher(draft), "target": Batcher(target)}
    drafted: list[int] = []
    kept: list[int] = []

    def ask_draft(ids: list[int], limit: int) -> None:
        length = min(DRAFT_LEN, limit - len(ids) - 1)
        if length < 1:
            return ask_target(ids, limit, [])
        job = Job(GenerateRequest(ids, length), lambda outcome: ask_target(ids, limit, outcome.new_ids))
        return batchers["draft"].submit(job)

    def ask_target(ids: list[int], limit: int, draft_ids: list[int]) -> None:
        def deliver(outcome: Any) -> None:
            drafted.append(len(draft_ids))
            kept.append(len(outcome.new_ids))
            assert count_accepted(draft_ids, outcome.new_ids) >= len(outcome.new_ids) - 1
            if len(ids) + len(outcome.new_ids) < limit:
                ask_draft([*ids, *outcome.new_ids], limit)

        batchers["target"].submit(Job(GenerateRequest(ids, len(draft_ids) + 1, draft_ids), deliver))

    for ids in prompts:
        ask_target(ids, len(ids) + NEW_TOKENS, [])
    while not kept or len(kept) < len(prompts):
        batchers["target"].step()
    timers = [start_timer(draft), start_timer(target)]
    first = sum(kept)
    started = time.perf_counter()
    while not all(batcher.is_idle for batcher in batchers.values()):
        for batcher in batchers.values():
            batcher.step()
    seconds = time.perf_counter() - started
    rounds = kept[len(prompts) :]
    inside = sum(timer.seconds for timer in timers)
    return Rate((sum(kept) - first) / seconds, 1 - inside / seconds, statistics.mean(rounds))


def start_timer(engine: Engine) -> TimedSession:
    if isinstance(engine.session, TimedSession):
        engine.session = engine.session._session
    engine.session = TimedSession(engine.session)
    return engine.session


def forget_all(*engines: Engine) -> None:
    """Every round reads its prompts anew."""
    for engine in engines:
        for row in engine.rows.rows:
            engine.rows.release(row, keep=False)


def step_ms(engine: Engine, rows: int, tokens: int, past: int) -> float:
    """Milliseconds of a forward pass over ``rows`` sequences, of which each is fed ``tokens`` behind ``past``."""
    forget_all(engine)
    for row in engine.rows.rows[:rows]:
        row.write(0, np.zeros(past, np.int64))
    pieces = [Piece(row, past, [1000] * tokens, tokens) for row in range(rows)]
    return median_ms(lambda: engine.forward(pieces))


def bound_ms(weights: np.ndarray) -> float:
    """Milliseconds to read ``weights`` once with as many threads as an engine has."""
    threads = len(os.sched_getaffinity(0))
    parts = np.array_split(weights, threads)

    def read() -> None:
        readers = [threading.Thread(target=np.add.reduce, args=(part,)) for part in parts]
        for reader in readers:
            reader.start()
        for reader in readers:
            reader.join()

    return median_ms(read)


def median_ms(run: Callable[[], Any]) -> float:
    run()
    times = []
    for _ in range(STEP_REPEATS):
        started = time.perf_counter()
        run()
        times.append(time.perf_counter() - started)
    return statistics.median(times) * 1e3


def measure_round(engines: dict[str, Engine], prompts: list[list[int]], weights: dict[str, np.ndarray]) -> dict:
    """Every figure once, by name."""
    draft, target = engines["draft"], engines["target"]
    found: dict[str, Any] = {}
    for count in CONCURRENCY:
        forget_all(draft, target)
        found[f"plain {count}"] = asdict(run_plain(target, prompts[:count]))
        forget_all(draft, target)
        found[f"speculative {count}"] = asdict(run_speculative(draft, target, prompts[:count]))
    for role, engine in engines.items():
        for rows in CONCURRENCY:
            for past in PASTS:
                for tokens in (1, DRAFT_LEN + 1):
                    found[f"step {role} {rows} {past} {tokens}"] = step_ms(engine, rows, tokens, past)
        found[f"bound {role}"] = bound_ms(weights[role])
        found[f"beside bound {role}"] = step_ms(engine, 1, 1, PASTS[0])
    return found


def summarise(rounds: list[dict]) -> dict[str, Any]:
    """Medians of figures, and of the rounds' ratios."""

    def median(name: str, key: str) -> float:
        return statistics.median(found[name][key] for found in rounds)

    def median_ratio(over: Callable[[dict], float], under: Callable[[dict], float]) -> float:
        return statistics.median(over(found) / under(found) for found in rounds)

    def median_of(name: str) -> float:
        return statistics.median(found[name] for found in rounds)

    names = [f"{kind} {count}" for kind in ("plain", "speculative") for count in CONCURRENCY]
    steps = [name for name in rounds[0] if name.startswith("step ")]
    return {
        "requests": {
            name: {key: median(name, key) for key in rounds[0][name]}
            | {
                "times_one_plain": median_ratio(
                    lambda found, name=name: found[name]["tokens_per_s"],
                    lambda found: found["plain 1"]["tokens_per_s"],
                )
            }
            for name in names
        },
        "steps_ms": {name.removeprefix("step "): median_of(name) for name in steps},
        "bandwidth": {
            role: {
                "bound_ms": median_of(f"bound {role}"),
                "step_ms": median_of(f"beside bound {role}"),
                "of_bound": median_ratio(
                    lambda found, role=role: found[f"bound {role}"],
                    lambda found, role=role: found[f"beside bound {role}"],
                ),
            }
            for role in ("draft", "target")
        },
    }


def print_table(table: dict[str, Any]) -> None:
    print(f"{'requests':16}{'tokens/s':>10}{'x one plain':>13}{'tokens/round':>14}{'overhead':>10}")
    for name, row in table["requests"].items():
        print(
            f"{name:16}{row['tokens_per_s']:10.1f}{row['times_one_plain']:13.2f}{row['tokens_a_round']:14.2f}"
            f"{row['overhead_fraction']:10.1%}"
        )
    print(f"\n{'ms a step':14}{'tokens':>7}" + "".join(f"{f'past {past}':>10}" for past in PASTS))
    for role in ("target", "draft"):
        for rows in CONCURRENCY:
            for tokens in (1, DRAFT_LEN + 1):
                times = [table["steps_ms"][f"{role} {rows} {past} {tokens}"] for past in PASTS]
                print(f"{role:7}{f'{rows} rows':7}{tokens:7}" + "".join(f"{ms:10.1f}" for ms in times))
    for role, row in table["bandwidth"].items():
        print(
            f"\n{role}: reading its weights {row['bound_ms']:.1f} ms, one decode step {row['step_ms']:.1f} ms: "
            f"{row['of_bound']:.0%} of the bound"
        )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("workspace", nargs="?", type=Path, default=demo_workspace())
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--arrival", action="store_true")
    parser.add_argument("--memory", type=int, metavar="REQUESTS")
    options = parser.parse_args()
    place = Workspace(options.workspace.absolute())
    if options.memory:
        for served, own, mapped in measure_memory(Engine(place.engine("target")), options.memory):
            print(f"{served:7} requests served, {own:8.1f} MiB of its own, {mapped:7.1f} MiB of mapped files")
        return
    if options.arrival:
        print_arrivals(Engine(place.engine("target")), prompt_ids(place)[0], options.rounds)
        return
    engines = {role: Engine(place.engine(role)) for role in ("draft", "target")}
    prompts = prompt_ids(place)
    weights = {role: np.ones(read_bytes(place.engine(role)) // 4, np.float32) for role in engines}
    rounds: list[dict[str, Any]] = []
    for _ in range(options.rounds):
        rounds.append(measure_round(engines, prompts, weights))
    table = summarise(rounds)
    print_table(table)
    if options.json:
        options.json.write_text(json.dumps({"medians": table, "rounds": rounds}, indent=2) + "\n", encoding="utf-8")


def prompt_ids(place: Workspace) -> list[list[int]]:
    tokenizer = TextTokenizer(place.engine("target"))
    return [tokenizer.encode(CHAT.format(text)) for text in PROMPTS]


def print_arrivals(engine: Engine, prompt: list[int], rounds: int) -> None:
    """One line a round, and how much longer the longest gap is than a step alone, in chunks."""
    for _ in range(rounds):
        forget_all(engine)
        found = measure_arrival(engine, prompt)
        chunks = (found.longest_ms - found.quiet_ms) / found.chunk_ms
        print(
            f"ms: a step {found.quiet_ms:.1f}, one chunk {found.chunk_ms:.1f}; while the prompt is read, longest gap "
            f"{found.longest_ms:.1f}, median {found.median_ms:.1f}: it rises by {chunks:.2f} chunks"
        )


def read_bytes(engine: Path) -> int:
    """Bytes of weights that one decode step reads: all but the embedding, of which it reads a row."""
    config = json.loads((engine / "config.json").read_text(encoding="utf-8"))["pretrained_config"]
    embedding = config["vocab_size"] * config["hidden_size"] * 4
    return (engine / "model.onnx.data").stat().st_size - embedding


if __name__ == "__main__":
    main()
