"""One decode step through Triton and the local backend, over the bare ONNX Runtime step on the same graph.

    python benchmarks/decode_step.py [WORKSPACE]

The workspace must hold built engines; by default it is the demo's. For each engine, both sides are measured in turn:
the step through Triton is the time of one request of 1 + STEPS tokens minus that of one token, divided by STEPS.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from pathlib import Path

import numpy as np
import onnxruntime

from trt_spec.cli.demo import demo_workspace
from trt_spec.deploy.host.launch import running_triton
from trt_spec.deploy.host.ports import find_free_ports
from trt_spec.deploy.workspace import deploy_workspace, resolve_launch
from trt_spec.plan.workspace import Workspace
from trt_spec.serve.contract import DRAFT_MODEL, TARGET_MODEL
from trt_spec.serve.local_backend.engine import open_session
from trt_spec.serve.local_backend.feed import Piece, render_feed
from trt_spec.verify.client import TritonClient

STEPS = 48
PAIRS = 9
PROMPT_IDS = tuple(range(1000, 1040))
CAPACITY_TOKENS = 128
DEADLINE_S = 120.0


class BareSession:
    """The graph alone: same session options, caches bound once, greedy choice by argmax, nothing else."""

    def __init__(self, folder: Path) -> None:
        config = json.loads((folder / "config.json").read_text())["pretrained_config"]
        self._session = open_session(folder)
        self._binding = self._session.io_binding()
        shape = (1, config["num_key_value_heads"], CAPACITY_TOKENS, config["head_size"])
        for layer in range(config["num_hidden_layers"]):
            for kind in ("key", "value"):
                cache = onnxruntime.OrtValue.ortvalue_from_numpy(np.zeros(shape, np.float32))
                self._binding.bind_ortvalue_input(f"{kind}.{layer}", cache)
                self._binding.bind_ortvalue_output(f"new_{kind}.{layer}", cache)
        self._logits = np.empty((1, config["vocab_size"]), np.float32)
        self._binding.bind_ortvalue_output("logits", onnxruntime.OrtValue.ortvalue_from_numpy(self._logits))

    def run(self, tokens: list[int], past: int) -> int:
        for name, values in render_feed([Piece(0, past, tokens, 1)]).inputs.items():
            self._binding.bind_cpu_input(name, values)
        self._session.run_with_iobinding(self._binding)
        return int(self._logits[0].argmax())

    def step_s(self) -> float:
        """Seconds a step, over STEPS steps behind the prompt."""
        token = self.run(list(PROMPT_IDS), 0)
        started = time.perf_counter()
        for step in range(STEPS):
            token = self.run([token], len(PROMPT_IDS) + step)
        return (time.perf_counter() - started) / STEPS


def triton_step_s(client: TritonClient, model: str) -> float:
    """Seconds a step of the served engine; both requests find the prompt in its cache."""

    def request_s(tokens: int) -> float:
        started = time.perf_counter()
        client.generate_from_ids(model, PROMPT_IDS, tokens, (), label="benchmark")
        return time.perf_counter() - started

    one = request_s(1)
    return (request_s(1 + STEPS) - one) / STEPS


def main() -> None:
    place = Workspace(Path(sys.argv[1]).absolute() if len(sys.argv) > 1 else demo_workspace())
    deploy_workspace(place)
    with (
        running_triton(resolve_launch(place.root, None, find_free_ports())) as server,
        TritonClient(server.grpc_url, deadline_s=DEADLINE_S) as client,
    ):
        for role, model in (("target", TARGET_MODEL), ("draft", DRAFT_MODEL)):
            bare = BareSession(place.engine(role))
            pairs = []
            for pair in range(PAIRS + 1):
                sides = [bare.step_s, lambda model=model: triton_step_s(client, model)]
                order = (0, 1) if pair % 2 else (1, 0)
                times = {side: sides[side]() for side in order}
                pairs.append((times[0], times[1]))
            del pairs[0]  # warm-up
            ratios = sorted(served / alone for alone, served in pairs)
            alone, served = (statistics.median(side) * 1e3 for side in zip(*pairs, strict=True))
            print(
                f"{role:6}  bare {alone:6.2f} ms  through Triton {served:6.2f} ms  "
                f"ratio: median {statistics.median(ratios):.3f}, {ratios[0]:.3f} to {ratios[-1]:.3f}"
            )


if __name__ == "__main__":
    main()
