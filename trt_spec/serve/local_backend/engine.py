"""One ONNX engine: an ONNX Runtime session over the graph that trtspec builds, and KV caches it writes in place."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
from numpy.typing import NDArray

CAPACITY_STEP_TOKENS = 128
"""Caches grow by this much: attention costs what the capacity is, growing costs one copy."""

ENGINE_FILES = ("config.json", "model.onnx", "model.onnx.data")


@dataclass(frozen=True)
class EngineLimits:
    """What the engine was built for; lengths in tokens. ``max_seq_len`` includes ``max_draft_len``."""

    vocab_size: int
    layers: int
    kv_heads: int
    head_size: int
    max_batch_size: int
    max_seq_len: int
    max_draft_len: int

    def max_output_len(self, prompt_tokens: int) -> int:
        """The target grants what max_seq_len leaves after prompt and draft (TensorRT-LLM's rule)."""
        return self.max_seq_len - self.max_draft_len - prompt_tokens


def load_limits(folder: Path) -> EngineLimits:
    """Reads ``config.json`` of an engine folder; ValueError if it is no engine folder of ours."""
    missing = [name for name in ENGINE_FILES if not (folder / name).is_file()]
    if missing:
        raise ValueError(f"{folder} is not an engine folder: {', '.join(missing)} missing. Run trtspec build again.")
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    pretrained, build = config["pretrained_config"], config["build_config"]
    return EngineLimits(
        vocab_size=pretrained["vocab_size"],
        layers=pretrained["num_hidden_layers"],
        kv_heads=pretrained["num_key_value_heads"],
        head_size=pretrained["head_size"],
        max_batch_size=build["max_batch_size"],
        max_seq_len=build["max_seq_len"],
        max_draft_len=build["max_draft_len"],
    )


class KvCache:
    """Keys and values of one sequence, float32 [1, kv_heads, capacity, head_size] a layer, bound to the session."""

    def __init__(self, session: onnxruntime.InferenceSession, limits: EngineLimits) -> None:
        self._limits = limits
        self._arrays: dict[str, NDArray[np.float32]] = {}
        self.binding = session.io_binding()
        self.capacity = 0
        self.reserve(1)

    def reserve(self, tokens: int) -> None:
        """Makes room for ``tokens`` in all, keeping what is there."""
        if tokens <= self.capacity:
            return
        limits, old = self._limits, self.capacity
        self.capacity = -(-tokens // CAPACITY_STEP_TOKENS) * CAPACITY_STEP_TOKENS
        for layer in range(limits.layers):
            for name in (f"key.{layer}", f"value.{layer}"):
                grown = np.zeros((1, limits.kv_heads, self.capacity, limits.head_size), np.float32)
                if old:
                    grown[:, :, :old] = self._arrays[name]
                self._bind(name, grown)

    def copy_prefix(self, other: KvCache, tokens: int) -> None:
        """Takes over the first ``tokens`` positions of another sequence."""
        self.reserve(tokens)
        for name, array in self._arrays.items():
            array[:, :, :tokens] = other._arrays[name][:, :, :tokens]

    def _bind(self, name: str, array: NDArray[np.float32]) -> None:
        """One memory for input and output, so that TensorScatter writes in place."""
        self._arrays[name] = array
        value = onnxruntime.OrtValue.ortvalue_from_numpy(array)
        self.binding.bind_ortvalue_input(name, value)
        self.binding.bind_ortvalue_output(f"new_{name}", value)


class Engine:
    """A loaded engine folder. Not thread-safe: one thread runs it."""

    def __init__(self, folder: Path) -> None:
        self.limits = load_limits(folder)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = len(os.sched_getaffinity(0))
        # Two sessions that alternate on the same cores otherwise fight through their spinning threads.
        options.add_session_config_entry("session.force_spinning_stop", "1")
        self.session = onnxruntime.InferenceSession(
            str(folder / "model.onnx"), options, providers=["CPUExecutionProvider"]
        )

    def new_cache(self) -> KvCache:
        return KvCache(self.session, self.limits)

    def forward(self, cache: KvCache, tokens: Sequence[int], past: int, rows: Sequence[int]) -> NDArray[np.float32]:
        """Feeds ``tokens`` behind the ``past`` first positions of ``cache``; logits [len(rows), vocab_size].

        ``rows`` are indices into ``tokens``. What the cache held at and after ``past`` is overwritten or ignored.
        """
        cache.reserve(past + len(tokens))
        binding: Any = cache.binding
        binding.bind_cpu_input("input_ids", np.array([tokens], np.int64))
        binding.bind_cpu_input("past_tokens", np.array([past], np.int64))
        binding.bind_cpu_input("logits_rows", np.array([rows], np.int64))
        logits = np.empty((1, len(rows), self.limits.vocab_size), np.float32)
        binding.bind_ortvalue_output("logits", onnxruntime.OrtValue.ortvalue_from_numpy(logits))
        self.session.run_with_iobinding(binding)
        rows_of_first: NDArray[np.float32] = logits[0]
        return rows_of_first
