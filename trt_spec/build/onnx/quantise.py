"""Block-wise weight quantisation in the layout of ONNX Runtime's ``com.microsoft.MatMulNBits``."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trt_spec.plan.steps import BLOCK_SIZES


@dataclass(frozen=True)
class QuantisedWeight:
    """``packed`` uint8 [out, blocks, block * bits / 8], ``scales`` float32 [out, blocks]; zero point is the middle."""

    packed: NDArray[np.uint8]
    scales: NDArray[np.float32]
    bits: int
    block: int


def quantise(weight: NDArray[np.float32], bits: int) -> QuantisedWeight:
    """Round-to-nearest symmetric quantisation of ``weight`` [out, in], each block of a row with a scale of its own.

    A value v is stored as round(v / scale) + 2^(bits-1), scale = -extreme / 2^(bits-1) where extreme is the entry of
    largest magnitude: so the extreme is hit exactly and the whole range of codes is used. Rows are padded with zeros to
    whole blocks.
    """
    block = BLOCK_SIZES[bits]
    rows, columns = weight.shape
    blocks = -(-columns // block)
    padded = np.zeros((rows, blocks * block), np.float32)
    padded[:, :columns] = weight
    grouped = padded.reshape(rows, blocks, block)
    middle = 1 << (bits - 1)
    extreme_at = np.abs(grouped).argmax(axis=2)[:, :, None]
    scales = (np.take_along_axis(grouped, extreme_at, axis=2)[:, :, 0] / -middle).astype(np.float32)
    safe = np.where(scales == 0.0, np.float32(1.0), scales)
    codes = np.clip(np.rint(grouped / safe[:, :, None]) + middle, 0, 2 * middle - 1).astype(np.uint8)
    if bits == 4:  # two codes a byte, the even column in the low half
        codes = codes[:, :, 0::2] | (codes[:, :, 1::2] << 4)
    return QuantisedWeight(np.ascontiguousarray(codes), scales, bits, block)
