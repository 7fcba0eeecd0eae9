"""The memory of the KV cache: one block for keys and one for values in every layer, a row for each sequence.

A block is float32 [rows, kv_heads, capacity, head_size]. The Attention operator's cost on a CPU follows the capacity,
so it is kept close to the longest sequence: when it must change, the rows are moved within the block, once in many
steps. The block itself never grows beyond what was reserved at the start, of which the system gives only the pages in
use. An idle row can be parked outside the blocks; row for row, both together stay within what was reserved.
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
        # Mapped, not allocated: pages cost nothing until they are written, and can be given back.
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
        self._memory = {name: mmap.mmap(-1, values * 4, flags=flags) for name in names}
        self._blocks = {name: np.frombuffer(memory, np.float32) for name, memory in self._memory.items()}
        self._bindings: dict[tuple[int, int], Any] = {}
        self.capacity = self.fit(1)
        self.position = list(range(rows))  # of each row in the blocks
        self.parked: dict[int, dict[str, NDArray[np.float32]]] = {}

    def fit(self, tokens: int) -> int:
        """The smallest capacity that holds ``tokens`` a row."""
        return min(-(-tokens // CAPACITY_STEP_TOKENS) * CAPACITY_STEP_TOKENS, self.max_tokens)

    def resize(self, tokens: int, lengths: Sequence[int]) -> None:
        """Makes the capacity fit ``tokens`` a row, at least, keeping the first ``lengths[row]`` positions of each.

        It shrinks only to half or less, so that a sequence which ends does not move the others for little.
        """
        kept = {self.position[row]: length for row, length in enumerate(lengths) if row not in self.parked and length}
        old, new = self.capacity, self.fit(max(tokens, *kept.values(), 1))
        if old // 2 < new <= old:
            return
        self.capacity = new
        self._bindings.clear()
        places = [(place, head) for place in sorted(kept) for head in range(self._kv_heads)]
        if new > old:
            places.reverse()  # from the far end, so that nothing is overwritten before it has moved
        for block in self._blocks.values():
            for place, head in places:
                index, values = place * self._kv_heads + head, kept[place] * self._size
                start, end = index * old * self._size, index * new * self._size
                block[end : end + values] = block[start : start + values]
                # What is left behind lies in another row's positions now, and may be no number: nobody has seen it yet.
                if new > old:
                    block[start : min(start + values, end)] = 0.0
                else:
                    block[max(start, end + values) : start + values] = 0.0
        if new < old:
            row_values = self._rows * self._kv_heads * self._size
            self._give_back(row_values * new, row_values * (self.max_tokens - new))

    def copy(self, source: int, destination: int, tokens: int) -> None:
        """Takes over the first ``tokens`` positions of another row; the capacity must fit them."""
        parked = self.parked.get(source)
        for name in self._blocks:
            view = self._view(name)
            held = view[self.position[source]] if parked is None else parked[name]
            view[self.position[destination], :, :tokens] = held[:, :tokens]

    def park(self, row: int, tokens: int) -> None:
        """Takes the first ``tokens`` positions of a row out of the block, into memory of their own."""
        self.parked[row] = {name: self._view(name)[self.position[row], :, :tokens].copy() for name in self._blocks}
        self._empty(self.position[row])

    def move(self, row: int, place: int, tokens: int) -> None:
        """Moves a row's first ``tokens`` to a position that holds nothing, whose row takes the position it leaves."""
        left = self.position[row]
        for name in self._blocks:
            view = self._view(name)
            view[place, :, :tokens] = view[left, :, :tokens]
            view[left, :, :tokens] = 0.0  # pages go back whole alone
        self.position[self.position.index(place)] = left
        self.position[row] = place
        self._empty(left)

    def clear(self, row: int) -> None:
        """Zeroes a row: what is no number would reach others even where attention gives it no weight."""
        for name in self._blocks:
            self._view(name)[self.position[row]] = 0.0

    def binding(self, first: int, count: int) -> Any:
        """An IO binding with ``count`` positions from ``first`` on as inputs and, in place, as outputs."""
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

    def _give_back(self, first: int, values: int) -> None:
        """Returns the whole pages within a range of every block to the system; they read as zeros from now on."""
        start, end = -(-first * 4 // mmap.PAGESIZE) * mmap.PAGESIZE, (first + values) * 4
        length = end - start if end == len(next(iter(self._memory.values()))) else (end - start) & -mmap.PAGESIZE
        if length > 0:
            for memory in self._memory.values():
                memory.madvise(mmap.MADV_DONTNEED, start, length)

    def _empty(self, place: int) -> None:
        values = self._kv_heads * self.capacity * self._size
        self._give_back(place * values, values)
