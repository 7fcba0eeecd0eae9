"""Matrices that were quantised before and expanded since: their blocks lie on a grid, and go back on it without loss.

A 4-bit block of GGUF (Q4_0, Q4_1) has 32 values step * code + lowest, an 8-bit one (Q8_0) step * code. Products with
the codes in ``com.microsoft.MatMulNBits``, in float32, are then those of the float32 matrix but for the order of sums,
and read a fifth of its bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

GRID_BLOCK = 32
HIGHEST_CODE = 15
Q8_HIGHEST_CODE = 127
TOLERANCE = 2.0**-20
"""Of a block's largest magnitude: sums of float32 round by 2^-24."""
ROWS_AT_ONCE = 512


@dataclass(frozen=True)
class GridWeight:
    """value = scales * (code - 8) + offsets; ``packed`` uint8 [out, blocks, 16], two codes a byte, the even column low.

    ``scales`` float32 [out, blocks], ``offsets`` float32 [blocks, out].
    """

    packed: NDArray[np.uint8]
    scales: NDArray[np.float32]
    offsets: NDArray[np.float32]


@dataclass(frozen=True)
class HalvedWeight:
    """value = scales * (16 * (high - 8) + low), both packed as in GridWeight; ``scales`` float32 [out, blocks]."""

    high: NDArray[np.uint8]
    low: NDArray[np.uint8]
    scales: NDArray[np.float32]


def find_grid(weight: NDArray[np.float32]) -> GridWeight | None:
    """The codes of a matrix [out, in] of which every block has 16 equally spaced values at most; None for any other."""
    blocks = _blocks(weight)
    if blocks is None:
        return None
    codes = np.empty(blocks.shape, np.uint8)
    steps, lowest = np.empty(blocks.shape[:2], np.float32), blocks.min(axis=2)
    for start in range(0, len(blocks), ROWS_AT_ONCE):
        part = slice(start, start + ROWS_AT_ONCE)
        found = _find_steps(blocks[part], lowest[part])
        if found is None:
            return None
        codes[part], steps[part] = found
    return GridWeight(_pack(codes), steps, np.ascontiguousarray((lowest + 8 * steps).T))


def find_halves(weight: NDArray[np.float32]) -> HalvedWeight | None:
    """The codes of a matrix [out, in] of which every block has values step * -127 .. 127; None for any other."""
    blocks = _blocks(weight)
    if blocks is None:
        return None
    steps = np.abs(blocks).max(axis=2) / np.float32(Q8_HIGHEST_CODE)
    codes = np.rint(blocks / np.where(steps == 0, np.float32(1), steps)[:, :, None]).astype(np.int16)
    if (np.abs(codes * steps[:, :, None] - blocks) > TOLERANCE * Q8_HIGHEST_CODE * steps[:, :, None]).any():
        return None
    return HalvedWeight(_pack((codes >> 4) + 8), _pack(codes & 15), steps)


def _blocks(weight: NDArray[np.float32]) -> NDArray[np.float32] | None:
    rows, columns = weight.shape
    return None if columns % GRID_BLOCK else weight.reshape(rows, columns // GRID_BLOCK, GRID_BLOCK)


def _find_steps(
    blocks: NDArray[np.float32], lowest: NDArray[np.float32]
) -> tuple[NDArray[np.uint8], NDArray[np.float32]] | None:
    """Codes and steps: between a block's lowest and highest value lie 15 steps or fewer."""
    highest = blocks.max(axis=2)
    bound = TOLERANCE * np.maximum(np.abs(lowest), np.abs(highest))
    codes, steps = np.zeros(blocks.shape, np.uint8), np.zeros(lowest.shape, np.float32)
    open_at = np.flatnonzero((highest > lowest).ravel())
    flat, flat_lowest, flat_bound = blocks.reshape(-1, GRID_BLOCK), lowest.ravel(), bound.ravel()
    span = (highest - lowest).ravel()
    for count in range(HIGHEST_CODE, 0, -1):
        values, start, step = flat[open_at], flat_lowest[open_at, None], span[open_at, None] / np.float32(count)
        code = np.rint((values - start) / step)
        fits = (np.abs(code * step + start - values).max(axis=1)) <= flat_bound[open_at]
        done = open_at[fits]
        codes.reshape(-1, GRID_BLOCK)[done] = code[fits]
        steps.ravel()[done] = step[fits, 0]
        open_at = open_at[~fits]
        if not len(open_at):
            return codes, steps
    return None


def _pack(codes: NDArray[np.integer[Any]]) -> NDArray[np.uint8]:
    codes = codes.astype(np.uint8)
    return np.ascontiguousarray(codes[:, :, 0::2] | (codes[:, :, 1::2] << 4))
