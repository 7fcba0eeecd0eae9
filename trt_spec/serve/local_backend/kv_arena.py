"""The memory of the KV cache: one block for keys and one for values in every layer, a row for each sequence.

A block is float32 [rows, kv_heads, capacity, head_size]. The Attention operator's cost on a CPU follows the capacity,
so it is kept close to the longest sequence: when it must change, the rows are moved within the block, once in many
steps. The block itself never grows beyond what was reserved at the start, of which the system gives only the pages in
use.
"""

from __future__ import annotations

import mmap
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnxruntime
from numpy.typing import NDArray

from .engine_folder import EngineLimits

CAPACITY_STEP_TOKENS = 128


class KvArena:
    """Keys and values of all sequences, bound to a session. Rows and heads are dense, positions are not."""

    def __init__(
        self, session: onnxruntime.InferenceSession, limits: EngineLimits, *, rows: int, max_tokens: int
    ) -> None:
        self._session = session
        self._rows, self._kv_heads, self._size = rows, limits.kv_heads, limits.head_size
        self.max_tokens = max_tokens
        values = rows * self._kv_heads * max_tokens * self._size
        names = [f"{kind}.{layer}" for layer in range(limits.layers) for kind in ("key", "value")]
        self._blocks = {name: _map_floats(values) for name in names}
        self._bindings: dict[tuple[int, int], Any] = {}
        self.capacity = min(CAPACITY_STEP_TOKENS, max_tokens)

    def resize(self, tokens: int, lengths: Sequence[int]) -> None:
        """Makes the capacity fit ``tokens`` a row, at least, keeping the first ``lengths[row]`` positions of each.

        It shrinks only to less than half, so that a sequence which ends does not move the others for little.
        """
        steps = -(-max(tokens, *lengths) // CAPACITY_STEP_TOKENS)
        capacity = min(steps * CAPACITY_STEP_TOKENS, self.max_tokens)
        if self.capacity // 2 < capacity <= self.capacity:
            return
        old, self.capacity = self.capacity, capacity
        self._bindings.clear()
        rows = [(row, head) for row in range(self._rows) for head in range(self._kv_heads) if lengths[row]]
        if capacity > old:
            rows.reverse()  # from the far end, so that nothing is overwritten before it has moved
        for block in self._blocks.values():
            for row, head in rows:
                index, values = row * self._kv_heads + head, lengths[row] * self._size
                start, end = index * old * self._size, index * capacity * self._size
                block[end : end + values] = block[start : start + values]

    def copy(self, source: int, destination: int, tokens: int) -> None:
        """Takes over the first ``tokens`` positions of another row."""
        for name in self._blocks:
            block = self._view(name)
            block[destination, :, :tokens] = block[source, :, :tokens]

    def clear(self, row: int) -> None:
        """Zeroes a row: what is no number would reach others even where attention gives it no weight."""
        for name in self._blocks:
            self._view(name)[row] = 0.0

    def binding(self, first: int, count: int) -> Any:
        """An IO binding with rows ``first`` to ``first + count - 1`` as inputs and, in place, as outputs."""
        key = (first, count)
        if key not in self._bindings:
            binding = self._bindings[key] = self._session.io_binding()
            for name in self._blocks:
                value = onnxruntime.OrtValue.ortvalue_from_numpy(self._view(name)[first : first + count])
                binding.bind_ortvalue_input(name, value)
                binding.bind_ortvalue_output(f"new_{name}", value)
        return self._bindings[key]

    def _view(self, name: str) -> NDArray[np.float32]:
        shape = (self._rows, self._kv_heads, self.capacity, self._size)
        return self._blocks[name][: int(np.prod(shape))].reshape(shape)


def _map_floats(count: int) -> NDArray[np.float32]:
    """Zeroed memory of its own mapping: pages cost nothing until they are written, whatever malloc would decide."""
    memory = mmap.mmap(-1, count * 4, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    return np.frombuffer(memory, np.float32)
