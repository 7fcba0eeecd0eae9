"""Figures of GPUs."""

from typing import get_args

import pytest

from trt_spec.errors import SpecError
from trt_spec.plan.hardware import GPUS, load_gpu
from trt_spec.spec import model


def test_every_gpu_of_the_spec_has_figures():
    assert set(GPUS) == set(get_args(model.Gpu))
    for name, gpu in GPUS.items():
        assert gpu.name == name
        assert gpu.trust
        assert min(gpu.memory_bytes, gpu.bandwidth_bytes_per_s, gpu.bf16_flops, gpu.link_bytes_per_s) > 0
        assert gpu.has_fp8 == (gpu.fp8_flops > 0)


def test_memory_is_what_the_driver_reports():
    assert load_gpu("H200").memory_bytes == 143771 * 1024**2 < 141e9 * 1.07


def test_compute_capability_is_compared_as_numbers():
    assert load_gpu("B200").compute_capability == (10, 0) > load_gpu("L40S").compute_capability == (8, 9)
    assert not load_gpu("A100").has_fp8


def test_an_unknown_gpu_lists_the_known_ones():
    with pytest.raises(SpecError, match="RTX") as raised:
        load_gpu("RTX")
    assert "A100, L40S, H100, H200, B200, generic" in str(raised.value)
    assert "nearest below" in raised.value.remedy
