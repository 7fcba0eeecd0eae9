"""One ONNX engine: an ONNX Runtime session over the graph that trtspec builds, and the KV cache it writes in place."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
from numpy.typing import NDArray

from .engine_folder import load_limits, plan_rows
from .feed import Piece, render_feed
from .kv_arena import KvArena
from .kv_rows import KvRows, Placement


class Engine:
    """A loaded engine folder. Not thread-safe: one thread runs it.

    ``kv_tokens`` bounds its KV cache, in tokens of all sequences together; ``max_num_tokens`` takes the place of the
    folder's own.
    """

    def __init__(self, folder: Path, kv_tokens: int | None = None, max_num_tokens: int | None = None) -> None:
        limits = load_limits(folder)
        self.limits = limits if max_num_tokens is None else replace(limits, max_num_tokens=max_num_tokens)
        rows, self.max_row_tokens = plan_rows(self.limits, kv_tokens)
        self.session = open_session(folder)
        self.rows = KvRows(rows, self.max_row_tokens)
        self._arena = KvArena(self.session, self.limits, rows=rows, max_tokens=self.max_row_tokens)
        self._logits = np.empty((0, self.limits.vocab_size), np.float32)

    def place(self, placement: Placement) -> None:
        """Brings what a request takes over from another row into its own."""
        if placement.copy_from is not None:
            self._arena.copy(placement.copy_from.index, placement.row.index, placement.cached_tokens)

    def forward(self, pieces: Sequence[Piece]) -> list[NDArray[np.float32]]:
        """Feeds one piece of each of several sequences, in one pass; logits [piece.wanted, vocab_size] for each piece.

        They are views of memory that the next call overwrites.
        """
        feed = render_feed(pieces)
        binding: Any = self._arena.binding(feed.first_row, len(feed.inputs["seqlens_k"]))
        for name, values in feed.inputs.items():
            binding.bind_cpu_input(name, values)
        rows = len(feed.inputs["logits_rows"])
        if len(self._logits) < rows:
            self._logits = np.empty((rows, self.limits.vocab_size), np.float32)
        binding.bind_ortvalue_output("logits", onnxruntime.OrtValue.ortvalue_from_numpy(self._logits[:rows]))
        self.session.run_with_iobinding(binding)
        ends = np.cumsum([piece.wanted for piece in pieces]).tolist()
        return [self._logits[end - piece.wanted : end] for piece, end in zip(pieces, ends, strict=True)]


def open_session(folder: Path) -> onnxruntime.InferenceSession:
    """The graph of an engine folder on all cores that this process may use."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = len(os.sched_getaffinity(0))
    # Two sessions that alternate on the same cores otherwise fight through their spinning threads.
    options.add_session_config_entry("session.force_spinning_stop", "1")
    return onnxruntime.InferenceSession(
        str(folder / "model.onnx"),
        options,
        providers=["CPUExecutionProvider"],
        # It would turn a product and the residual's sum into one Gemm, which takes 4 to 8 % more of a whole step.
        disabled_optimizers=["MatMulAddFusion"],
    )
