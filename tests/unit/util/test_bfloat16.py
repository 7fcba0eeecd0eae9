from __future__ import annotations

import ml_dtypes
import numpy as np

from trt_spec.util.bfloat16 import bf16_bits, bf16_to_float32


def test_every_bfloat16_survives_the_round_trip() -> None:
    bits = np.arange(1 << 16, dtype=np.uint16)
    wide = bf16_to_float32(bits)
    assert np.array_equal(wide, bits.view(ml_dtypes.bfloat16).astype(np.float32), equal_nan=True)
    numbers = ~np.isnan(wide)
    assert np.array_equal(bf16_bits(wide)[numbers], bits[numbers])


def test_rounding_agrees_with_ml_dtypes_on_ties_overflow_and_random_bits() -> None:
    rng = np.random.default_rng(0)
    upper = rng.integers(0, 1 << 16, 4096, dtype=np.uint32) << np.uint32(16)
    patterns = [upper | np.uint32(low) for low in (0x7FFF, 0x8000, 0x8001)]
    patterns.append(rng.integers(0, 1 << 32, 4096, dtype=np.uint32))
    patterns.append(np.array([0x7F7FFFFF, 0xFF7FFFFF, 0x7F800000, 0x7F800001, 0xFFFFFFFF, 1], dtype=np.uint32))
    values = np.concatenate(patterns).view(np.float32)
    with np.errstate(invalid="ignore"):
        expected = values.astype(ml_dtypes.bfloat16).astype(np.float32)
    assert np.array_equal(bf16_to_float32(bf16_bits(values)), expected, equal_nan=True)


def test_shape_is_kept() -> None:
    assert bf16_bits(np.zeros((2, 3, 4), np.float32)).shape == (2, 3, 4)
    assert bf16_bits(np.zeros((), np.float32)).shape == ()
    assert bf16_to_float32(np.array(0x3F80, np.uint16)).shape == ()
    assert bf16_bits(np.ones((4, 4), np.float32).T[::2]).tolist() == [[0x3F80] * 4] * 2
