"""Memory is that of blocks, not of the model. `benchmarks/convert.py` measures it at 3 GB, mapped files included."""

import threading
from pathlib import Path

import pytest

from trt_spec.build.checkpoint import convert as convert_module

HIDDEN, INNER, VOCAB = 256, 4096, 20000
LAYERS = (2, 12)
LOOK_EVERY = 8  # writes


def pss_bytes():
    rollup = Path("/proc/self/smaps_rollup").read_text()
    return next(int(line.split()[1]) for line in rollup.splitlines() if line.startswith("Pss:")) * 1024


@pytest.fixture
def measured(convert, monkeypatch):
    """measured(model, **options) -> how much PSS grew, looked at while writing."""

    def run(model, **options):
        before, largest, writes, lock = pss_bytes(), 0, 0, threading.Lock()

        def add(meter, count):
            nonlocal largest, writes
            with lock:
                writes += 1
                if writes % LOOK_EVERY == 0:
                    largest = max(largest, pss_bytes())
            original(meter, count)

        original = convert_module._Meter.add
        monkeypatch.setattr(convert_module._Meter, "add", add)
        convert(model, **options)
        monkeypatch.setattr(convert_module._Meter, "add", original)
        return largest - before

    return run


@pytest.mark.parametrize("quantization", ["none", "fp8_rowwise"])
def test_memory_does_not_grow_with_layers(make_source, measured, tmp_path, quantization):
    grown = {}
    for layers in LAYERS:
        model, _ = make_source(
            folder=f"model-{layers}",
            hidden_size=HIDDEN,
            intermediate_size=INNER,
            vocab_size=VOCAB,
            num_hidden_layers=layers,
        )
        size = (model / "model.safetensors").stat().st_size
        grown[layers] = measured(model, output=tmp_path / f"out-{layers}", tp=4, workers=2, quantization=quantization)
    few, many = (grown[layers] for layers in LAYERS)
    assert size > 100e6
    # A worker holds a block of source, its float32 copies and its codes: far less than the 68 MB between the two.
    assert many < few + 34e6
    assert many < 48e6
