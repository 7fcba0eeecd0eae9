"""Our E4M3 against ml_dtypes, which trtspec does not need to convert."""

import ml_dtypes
import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from trt_spec.build.checkpoint.float8 import decode_table, encode, quantise_rows, requantise_table


def reference(values):
    with np.errstate(invalid="ignore"):
        return values.astype(ml_dtypes.float8_e4m3fn).view(np.uint8)


def test_all_codes_decode_alike():
    assert np.array_equal(
        decode_table(), np.arange(256, dtype=np.uint8).view(ml_dtypes.float8_e4m3fn).astype(np.float32), equal_nan=True
    )


def test_every_upper_half_with_and_without_bits_below():
    upper = np.arange(1 << 16, dtype=np.uint32) << 16
    for below in (0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF):
        values = (upper | np.uint32(below)).view(np.float32)
        assert np.array_equal(encode(values), reference(values)), hex(below)


@given(arrays.arrays(np.uint32, st.integers(1, 300)))
def test_any_float_encodes_alike(bits):
    values = bits.view(np.float32)
    assert np.array_equal(encode(values), reference(values))


@given(
    arrays.arrays(
        np.float32, st.tuples(st.integers(1, 5), st.integers(1, 40)), elements=st.floats(-3000, 3000, width=32)
    )
)
def test_rows_follow_tensorrt_llms_formula(values):
    clamped = np.clip(values, np.float32(-1200), np.float32(1200))
    scales = np.maximum(np.abs(clamped).max(axis=1) / np.float32(448), np.float32(1 / (448 * 512)))
    codes = reference(np.clip(clamped / scales[:, None], np.float32(-448), np.float32(448)))
    ours, our_scales = quantise_rows(values.copy(), (-1200.0, 1200.0))
    assert np.array_equal(our_scales, scales)
    assert np.array_equal(ours, codes)


@given(st.floats(2**-20, 2**10, width=32), st.floats(1, 8, width=32))
def test_requantising_multiplies_then_divides(old, factor):
    old_scale = np.float32(old)
    new_scale = np.float32(old_scale * np.float32(factor))
    values = decode_table() * old_scale
    values /= new_scale
    assert np.array_equal(requantise_table(old_scale, new_scale), reference(values))
