import ml_dtypes
import numpy as np
import pytest

from trt_spec.build.checkpoint.casts import cast, is_finite

TYPES = {"F32": np.float32, "F16": np.float16, "BF16": ml_dtypes.bfloat16}
ALL_HALVES = np.arange(1 << 16, dtype=np.uint16)
FLOATS = np.concatenate(
    [(ALL_HALVES.astype(np.uint32) << 16) | np.uint32(below) for below in (0, 1, 0x7FFF, 0x8000, 0x8001)]
)


@pytest.mark.parametrize("target", TYPES)
@pytest.mark.parametrize("source", TYPES)
def test_casts_round_as_numpy_and_ml_dtypes_do(source, target):
    bits = FLOATS if source == "F32" else ALL_HALVES
    values = bits.view(TYPES[source])
    with np.errstate(over="ignore", invalid="ignore"):
        expected = values.astype(np.float32).astype(TYPES[target])
        found = cast(bits, source, target).view(TYPES[target])
        assert np.array_equal(found.astype(np.float32), expected.astype(np.float32), equal_nan=True)


def test_equal_types_are_passed_on_bit_by_bit():
    assert cast(ALL_HALVES, "BF16", "BF16") is ALL_HALVES


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("odd", [np.nan, -np.nan, np.inf, -np.inf])
def test_what_is_no_number_is_found(dtype, odd):
    values = np.linspace(-3, 3, 100).astype(TYPES[dtype])
    storage = np.uint32 if dtype == "F32" else np.uint16
    assert is_finite(values.view(storage), dtype)
    values[57] = odd
    assert not is_finite(values.view(storage), dtype)


def test_a_nan_in_fp8_is_found():
    codes = np.array([0x00, 0x7E, 0xFE, 0x80], dtype=np.uint8)
    assert is_finite(codes, "F8_E4M3")
    assert not is_finite(np.append(codes, np.uint8(0xFF)), "F8_E4M3")
