"""Readings of the machine, from files made here and the stand-in for nvidia-smi."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from trt_spec.verify.machine import (
    CpuTimes,
    describe_gpus,
    explain_silence,
    measure_machine,
    read_cpu_times,
    read_gpu_utilization,
)

STANDIN = Path(__file__).parents[2] / "standins" / "nvidia_smi.py"


@pytest.fixture
def gpus(tmp_path, monkeypatch):
    """gpus(rows) puts an nvidia-smi on PATH that lists them."""

    def put(rows):
        program = tmp_path / "bin" / "nvidia-smi"
        program.parent.mkdir(exist_ok=True)
        program.write_text(f'#!/bin/sh\nexec {sys.executable} {STANDIN} "$@"\n')
        program.chmod(0o755)
        monkeypatch.setenv("PATH", str(program.parent), prepend=":")
        monkeypatch.setenv("STANDIN_GPUS", json.dumps(rows))

    return put


@pytest.fixture
def proc(tmp_path):
    folder = tmp_path / "proc"
    folder.mkdir()
    (folder / "stat").write_text("cpu  100 0 50 800 50 0 0 0 0 0\ncpu0 1 2\n")
    (folder / "meminfo").write_text("MemTotal:       1000 kB\nMemFree: 1 kB\nMemAvailable:    400 kB\n")
    return folder


def test_processor_and_memory(proc, monkeypatch):
    monkeypatch.setenv("PATH", "")
    assert read_cpu_times(proc) == CpuTimes(150, 1000)
    load = measure_machine(CpuTimes(50, 800), proc)
    assert load.cpu_fraction == pytest.approx(0.5)
    assert (load.memory_used_bytes, load.memory_total_bytes) == (600 * 1024, 1000 * 1024)
    assert load.gpu_utilization_percent == ()


def test_what_cannot_be_read_is_none(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", "")
    load = measure_machine(CpuTimes(0, 0), tmp_path / "nothing")
    assert (load.cpu_fraction, load.memory_used_bytes) == (None, None) and describe_gpus() == ""
    (tmp_path / "stat").write_text("nonsense\n")
    assert read_cpu_times(tmp_path) is None


def test_gpus(gpus, proc):
    gpus([{"utilization.gpu": "97", "memory.used": "1000", "clocks.sm": "1980"}] * 2)
    load = measure_machine(None, proc)
    assert load.gpu_utilization_percent == (97, 97) and load.gpu_clock_mhz == (1980, 1980)
    assert load.gpu_memory_used_bytes == (1000 * 2**20,) * 2
    assert describe_gpus() == "2 x NVIDIA H200 (143771 MiB), driver 590.44.01"


def test_gpus_that_tell_nothing_of_their_load(gpus):
    gpus([{"utilization.gpu": "[N/A]"}])
    assert read_gpu_utilization() == ()


@pytest.mark.parametrize(
    ("utilization", "words"),
    [((100, 100, 100, 0), "ranks diverged: util 100/100/100/0"), ((0, 0), "GPU util 0/0"), ((), "")],
)
def test_b039_gpu_load_tells_ranks_that_wait_for_each_other(utilization, words):
    assert explain_silence(utilization) == words
