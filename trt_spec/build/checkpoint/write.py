"""Writing one rank file: the header first, then every slice at its place, in blocks of bounded memory."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from trt_spec.build.checkpoint.casts import Bits, cast, is_finite, widen
from trt_spec.build.checkpoint.float8 import quantise_rows, requantise_table
from trt_spec.build.checkpoint.outputs import (
    Cast,
    Constant,
    Largest,
    OutputTensor,
    Piece,
    QuantiseRows,
    RankPlan,
    Requantise,
    RotaryTable,
    WrittenWithWeight,
)
from trt_spec.build.checkpoint.rotary import render_table
from trt_spec.build.checkpoint.source import MappedSource
from trt_spec.plan.facts import ModelFacts

BLOCK_BYTES = 4 << 20  # of source data: what a worker has mapped at a time
QUANTISED_ELEMENTS = 1 << 17  # at a time, so that the steps in between stay in the processor's cache

OnBytes = Callable[[int], None]
"""Called with the bytes written since the last call."""


@dataclass
class Work:
    """What the workers of a conversion share. ``stop`` set, they give up at the next block."""

    source: MappedSource
    facts: ModelFacts
    clamp: tuple[float, float] | None
    on_bytes: OnBytes
    stop: threading.Event = field(default_factory=threading.Event)


class StoppedError(Exception):
    """Another worker failed or the user interrupted; this one ends too."""


def write_rank(path: Path, plan: RankPlan, work: Work, *, report_shared: bool) -> tuple[str, ...]:
    """Write a rank file from nothing; returns a warning for each source tensor with values that are no numbers.

    ``report_shared`` also looks into the tensors that all ranks share. The file is complete but not flushed yet. Raises
    OSError.
    """
    with path.open("wb", buffering=0) as file:
        writer = _RankWriter(file.fileno(), plan, work, report_shared)
        writer.write(plan.header, 0)
        for tensor in plan.tensors:
            writer.write_tensor(tensor)
    return tuple(writer.warnings)


class _RankWriter:
    def __init__(self, descriptor: int, plan: RankPlan, work: Work, report_shared: bool) -> None:
        self.descriptor = descriptor
        self.plan = plan
        self.work = work
        self.source = work.source
        self.report_shared = report_shared
        self.warnings: dict[str, None] = {}

    def write(self, data: bytes | Bits, offset: int) -> int:
        """Write all of ``data`` at ``offset``; the offset after it."""
        if self.work.stop.is_set():
            raise StoppedError
        view = memoryview(data if isinstance(data, bytes) else data.reshape(-1).view(np.uint8).data)
        position = offset
        while len(view):
            done = os.pwrite(self.descriptor, view, position)
            view, position = view[done:], position + done
        self.work.on_bytes(position - offset)
        return position

    def write_tensor(self, tensor: OutputTensor) -> None:
        recipe, offset = tensor.recipe, self.plan.offsets[tensor.name]
        if isinstance(recipe, Cast):
            self._write_cast(tensor, recipe, offset)
        elif isinstance(recipe, QuantiseRows):
            self._write_quantised(recipe, offset)
        elif isinstance(recipe, Requantise):
            self._write_requantised(recipe, offset)
        elif isinstance(recipe, Largest):
            self.write(self._largest(recipe).view(np.uint32), offset)
        elif isinstance(recipe, Constant):
            self.write(np.array(recipe.values, dtype=np.float32).view(np.uint32), offset)
        elif isinstance(recipe, RotaryTable):
            for block in render_table(tensor.name, self.work.facts):
                offset = self.write(block.view(np.uint32), offset)
        else:
            assert isinstance(recipe, WrittenWithWeight)

    def _blocks(self, piece: Piece) -> Iterator[tuple[Bits, str]]:
        """Blocks of rows of a piece with their type; a block's pages are given back when the next is asked for."""
        dtype = self.source.dtype(piece.source)
        total = piece.rows[1] - piece.rows[0]
        step = max(1, BLOCK_BYTES // self.source.row_bytes(piece.source))
        for first in range(0, total, step):
            last = min(first + step, total)
            yield self.source.rows(piece, first, last), dtype
            self.source.release(piece, first, last)
        self.source.release_file(piece)

    def _write_cast(self, tensor: OutputTensor, recipe: Cast, offset: int) -> None:
        end = offset + tensor.total_bytes
        for piece in recipe.pieces:
            for bits, dtype in self._blocks(piece):
                stored = np.ascontiguousarray(bits)
                ours = cast(stored, dtype, tensor.dtype)
                if (self.report_shared or not recipe.shared) and not is_finite(ours, tensor.dtype):
                    self._warn(piece, stored, dtype, tensor.dtype)
                offset = self.write(ours, offset)
        if offset < end:
            self.write(bytes(end - offset), offset)

    def _write_requantised(self, recipe: Requantise, offset: int) -> None:
        scales = [self.source.scalar(name) for name in recipe.scales]
        largest = max(scales)
        for piece, scale in zip(recipe.pieces, scales, strict=True):
            table = requantise_table(scale, largest)
            for bits, dtype in self._blocks(piece):
                if not is_finite(bits, dtype):
                    self._warn(piece, bits, dtype, dtype)
                offset = self.write(table[bits], offset)

    def _write_quantised(self, recipe: QuantiseRows, offset: int) -> None:
        scale_offset = self.plan.offsets[recipe.scale_tensor]
        for piece in recipe.pieces:
            columns = piece.columns[1] - piece.columns[0]
            step = max(1, QUANTISED_ELEMENTS // columns)
            for bits, dtype in self._blocks(piece):
                codes = np.empty(bits.shape, dtype=np.uint8)
                scales = np.empty(len(bits), dtype=np.float32)
                for first in range(0, len(bits), step):
                    rows = slice(first, first + step)
                    codes[rows], scales[rows] = quantise_rows(widen(bits[rows], dtype), self.work.clamp)
                if not np.isfinite(scales).all() or not is_finite(bits, dtype):
                    self._warn(piece, bits, dtype, dtype)
                offset = self.write(codes, offset)
                scale_offset = self.write(scales.view(np.uint32), scale_offset)

    def _largest(self, recipe: Largest) -> npt.NDArray[np.float32]:
        value = max([self.source.scalar(name) for name in recipe.scalars], default=np.float32(1))
        return np.array([np.float32(1) / value if recipe.reciprocal else value], dtype=np.float32)

    def _warn(self, piece: Piece, stored: Any, source: str, target: str) -> None:
        if is_finite(np.ascontiguousarray(stored), source):
            text = f"Tensor {piece.source!r} has values beyond {target}, which became infinite."
        else:
            text = f"Tensor {piece.source!r} has NaN or infinite values."
        self.warnings[text] = None
