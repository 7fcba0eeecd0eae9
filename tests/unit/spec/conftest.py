"""Specs as plain values, one sound spec for each backend, for tests to bend."""

from __future__ import annotations

import copy

import pytest

ONNX = {
    "name": "tiny",
    "backend": "onnx",
    "target": {"model": "./models/tiny"},
    "draft": {"model": "./models/tiny", "quantization": "int8"},
}
ENGINE = {
    "name": "pair",
    "backend": "engine",
    "hardware": {"gpu": "H200", "gpus": 4},
    "target": {"model": "owner/big", "quantization": "fp8", "kv_cache_dtype": "fp8", "tensor_parallel": 4},
    "draft": {"model": "owner/small", "quantization": "fp8", "gpus": [0]},
}
LLMAPI = {
    "name": "pair",
    "backend": "llmapi",
    "hardware": {"gpu": "H100", "gpus": 8},
    "target": {"model": "owner/big", "tensor_parallel": 8},
    "draft": {"model": "owner/small"},
}


@pytest.fixture
def onnx_values() -> dict:
    return copy.deepcopy(ONNX)


@pytest.fixture(params=["engine", "onnx", "llmapi"])
def sound_values(request) -> dict:
    return copy.deepcopy({"engine": ENGINE, "onnx": ONNX, "llmapi": LLMAPI}[request.param])


@pytest.fixture
def values_of():
    """Sound values of a backend."""
    return lambda backend: copy.deepcopy({"engine": ENGINE, "onnx": ONNX, "llmapi": LLMAPI}[backend])
