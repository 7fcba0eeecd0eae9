"""The memory of the KV cache: one block for keys and one for values in every layer, a row for each sequence.

A block is float32 [rows, kv_heads, tokens, head_size], reserved whole at the start; the system gives only the pages
that were written. Attention reads no position behind a sequence's last one, so rows never move, what a row held before
needs no clearing, and a row costs what its tokens cost.
"""

from __future__ import annotations

import mmap
from typing import Any

import numpy as np
import onnxruntime
from numpy.typing import NDArray

from .engine_folder import EngineLimits


class KvArena:
    """Keys and values of all sequences, bound to a session."""

    def __init__(
        self, session: onnxruntime.InferenceSession, limits: EngineLimits, *, rows: int, max_tokens: int
    ) -> None:
        self._session = session
        shape = (rows, limits.kv_heads, max_tokens, limits.head_size)
        names = [f"{kind}.{layer}" for layer in range(limits.layers) for kind in ("key", "value")]
        # Mapped, not allocated: pages cost nothing until they are written.
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
        self.blocks: dict[str, NDArray[np.float32]] = {
            name: np.frombuffer(mmap.mmap(-1, int(np.prod(shape)) * 4, flags=flags), np.float32).reshape(shape)
            for name in names
        }
        self._bindings: dict[tuple[int, int], Any] = {}

    def copy(self, source: int, destination: int, tokens: int) -> None:
        """Takes over the first ``tokens`` positions of another row."""
        for block in self.blocks.values():
            block[destination, :, :tokens] = block[source, :, :tokens]

    def binding(self, first: int, count: int) -> Any:
        """An IO binding with ``count`` rows from ``first`` on as inputs and, in place, as outputs."""
        key = (first, count)
        if key not in self._bindings:
            binding = self._bindings[key] = self._session.io_binding()
            for name, block in self.blocks.items():
                value = onnxruntime.OrtValue.ortvalue_from_numpy(block[first : first + count])
                binding.bind_ortvalue_input(name, value)
                binding.bind_ortvalue_output(f"new_{name}", value)
        return self._bindings[key]
