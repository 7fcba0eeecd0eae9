"""bfloat16 is the upper half of a float32; numpy has no such type, so its bits travel as uint16."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

_QUIET_NAN = np.uint16(0x7FC0)


def bf16_bits(values: npt.NDArray[np.float32]) -> npt.NDArray[np.uint16]:
    """Round float32 to bfloat16 (nearest, ties to even; every NaN becomes a quiet one); same shape, as bits."""
    flat = np.ascontiguousarray(values, dtype=np.float32).reshape(-1)
    bits = flat.view(np.uint32)
    rounded = bits + np.uint32(0x7FFF)
    rounded += (bits >> np.uint32(16)) & np.uint32(1)
    rounded >>= np.uint32(16)
    halves = rounded.astype(np.uint16)
    halves[np.isnan(flat)] = _QUIET_NAN
    return halves.reshape(values.shape)


def bf16_to_float32(bits: npt.NDArray[np.uint16]) -> npt.NDArray[np.float32]:
    """Widen bfloat16 bits to float32 without loss; same shape."""
    wide: npt.NDArray[Any] = bits.astype(np.uint32)
    wide <<= np.uint32(16)
    return wide.view(np.float32)
