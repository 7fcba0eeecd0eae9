"""Casts between the weight types, on bits, and the search for numbers that are none.

A cast from 16 to 16 bits is a table of all 65536 values, made once through float32.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import numpy.typing as npt

from trt_spec.build.checkpoint.float8 import NAN_BITS, decode_table
from trt_spec.util.bfloat16 import bf16_bits, bf16_to_float32

Bits = npt.NDArray[Any]

STORAGE: dict[str, np.dtype[Any]] = {
    "F32": np.dtype("<u4"),
    "F16": np.dtype("<u2"),
    "BF16": np.dtype("<u2"),
    "F8_E4M3": np.dtype("u1"),
}
"""The unsigned integers that carry the bits of each type."""

# Magnitudes from these bits on are infinities and NaNs.
_NOT_FINITE = {"F32": 0x7F800000, "F16": 0x7C00, "BF16": 0x7F80, "F8_E4M3": NAN_BITS}


def widen(bits: Bits, dtype: str) -> npt.NDArray[np.float32]:
    """Float32 values of BF16, F16, F32 or FP8 bits: a new array."""
    if dtype == "F8_E4M3":
        return decode_table()[bits]
    if dtype == "BF16":
        return bf16_to_float32(bits)
    if dtype == "F16":
        return bits.view(np.float16).astype(np.float32)
    return bits.view(np.float32).copy()


def narrow(values: npt.NDArray[np.float32], dtype: str) -> Bits:
    """Bits of float32 values in BF16, F16 or F32, rounded to the nearest, ties to even."""
    if dtype == "BF16":
        return bf16_bits(values)
    if dtype == "F16":
        with np.errstate(over="ignore"):  # too large becomes infinite, which the caller looks for
            return values.astype(np.float16).view(np.uint16)
    return values.view(np.uint32)


def cast(bits: Bits, source: str, target: str) -> Bits:
    """Bits of ``source`` type as bits of ``target`` type; the same array where the types are equal."""
    if source == target:
        return bits
    if STORAGE[source].itemsize == STORAGE[target].itemsize == 2:
        return _table(source, target)[bits]
    return narrow(widen(np.ascontiguousarray(bits), source), target)


@functools.cache
def _table(source: str, target: str) -> Bits:
    return narrow(widen(np.arange(1 << 16, dtype=np.uint16), source), target)


def is_finite(bits: Bits, dtype: str) -> bool:
    """Whether no value is NaN or infinite."""
    if bits.size == 0:
        return True
    sign = np.array(1 << (8 * bits.itemsize - 1), dtype=bits.dtype)
    return int((bits & ~sign).max()) < _NOT_FINITE[dtype]
