"""FP8 E4M3 as TensorRT-LLM stores it (no infinities, 448 the largest, one NaN a sign), with numpy alone.

Rounding is to the nearest, ties to even, and NaN beyond 464, as torch and ml_dtypes do (the tests compare all values).
It goes through a table: an E4M3 number keeps 3 bits after the leading one, so the upper 16 bits of a float32 decide it,
once their lowest bit says whether anything but zeros was below.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import numpy.typing as npt

LARGEST = 448.0
SMALLEST_ROW_SCALE = 1.0 / (448.0 * 512.0)  # TensorRT-LLM quantization/functional.py, postprocess_fp8_rowwise
NAN_BITS = 0x7F
_TOO_LARGE = 464.0  # halfway between 448 and the 480 that has no code; the tie goes to 448
_BIAS = 7
_MANTISSA = 8.0

Bytes = npt.NDArray[np.uint8]
Floats = npt.NDArray[np.float32]


@functools.cache
def decode_table() -> Floats:
    """The float32 value of each of the 256 codes."""
    codes = np.arange(256)
    exponent, mantissa = (codes >> 3) & 15, codes & 7
    normal = np.ldexp(1.0 + mantissa / _MANTISSA, exponent - _BIAS)
    subnormal = np.ldexp(mantissa / _MANTISSA, 1 - _BIAS)
    values = np.where(exponent == 0, subnormal, normal)
    values[codes & NAN_BITS == NAN_BITS] = np.nan
    return np.where(codes & 0x80, -values, values).astype(np.float32)


@functools.cache
def _encode_table() -> Bytes:
    """The code of each float32 by its upper 16 bits, the lowest of them standing for all bits below.

    Set, it means anything strictly between its two neighbours: no rounding boundary lies there, so its middle will do.
    """
    upper = np.arange(1 << 16, dtype=np.uint32)
    with np.errstate(invalid="ignore"):
        value = np.abs((upper << 16).view(np.float32).astype(np.float64))
        finite = np.where(value <= _TOO_LARGE, value, 0.0)
        exponent = np.where(finite > 0, np.frexp(finite)[1] - 1, 1 - _BIAS)
        exponent = np.maximum(exponent, 1 - _BIAS)
    steps = np.rint(np.ldexp(finite, 3 - exponent))  # numpy's rint rounds ties to even; 8 and more carry a leading one
    codes = np.where(value <= _TOO_LARGE, (exponent + _BIAS - 1) * 8 + steps, NAN_BITS).astype(np.uint8)
    return codes | ((upper >> 8) & 0x80).astype(np.uint8)


def encode(values: Floats) -> Bytes:
    """Round a contiguous float32 array to E4M3 codes of the same shape."""
    halves = values.view(np.uint16).reshape(*values.shape, 2)
    index: npt.NDArray[Any] = halves[..., 1] | (halves[..., 0] != 0)
    codes: Bytes = _encode_table()[index]
    return codes


def quantise_rows(values: Floats, clamp: tuple[float, float] | None) -> tuple[Bytes, Floats]:
    """Codes and scale of each row of a [rows, columns] array, which is overwritten.

    TensorRT-LLM's rule: scale = largest magnitude / 448, but at least 1 / (448 * 512), all in float32.
    """
    largest = np.maximum(values.max(axis=1), -values.min(axis=1))
    # Clamping changes nothing in rows that stay within, which is all of them in practice.
    if clamp is not None and not np.all(largest <= min(-clamp[0], clamp[1])):
        np.clip(values, clamp[0], clamp[1], out=values)
        largest = np.maximum(values.max(axis=1), -values.min(axis=1))
    scales = np.maximum(largest / np.float32(LARGEST), np.float32(SMALLEST_ROW_SCALE))
    values /= scales[:, None]
    return encode(values), scales


def requantise_table(old_scale: np.float32, new_scale: np.float32) -> Bytes:
    """The code under ``new_scale`` of each code under ``old_scale``, multiplied and divided in float32 one by one."""
    return encode((decode_table() * old_scale) / new_scale)
