"""Matrices whose blocks lie on a grid of 4 or 8 bits, kept without loss."""

import json
import shutil

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import load_file, save_file

from trt_spec.build.onnx.engine import write_engine
from trt_spec.build.onnx.grid import GRID_BLOCK, find_grid, find_halves
from trt_spec.serve.local_backend.engine import Engine
from trt_spec.serve.local_backend.feed import Piece

TOLERANCE = 1e-4
SEEDS = st.integers(0, 2**32)


def unpack(packed):
    return np.stack([packed & 15, packed >> 4], axis=3).reshape(*packed.shape[:2], -1).astype(np.float32)


def on_4_bits(shape, seed, codes=16):
    """A matrix as GGUF's Q4_1 stores it: half-precision step and minimum a block, ``codes`` codes at most."""
    rng = np.random.default_rng(seed)
    blocks = (shape[0], shape[1] // GRID_BLOCK)
    step, lowest = (rng.normal(size=blocks).astype(np.float16).astype(np.float32)[:, :, None] for _ in range(2))
    values = rng.integers(0, codes, (*blocks, GRID_BLOCK)).astype(np.float32) * np.abs(step) + lowest
    return values.reshape(shape)


def on_8_bits(shape, seed):
    """As Q8_0: one entry of each block has the code 127 or -127."""
    rng = np.random.default_rng(seed)
    codes = rng.integers(-127, 128, (shape[0], shape[1] // GRID_BLOCK, GRID_BLOCK))
    codes[:, :, 3] = rng.choice([-127, 127], codes.shape[:2])
    step = np.abs(rng.normal(size=codes.shape[:2])).astype(np.float16).astype(np.float32)[:, :, None]
    return (codes * step).astype(np.float32).reshape(shape)


@settings(deadline=None, max_examples=60)
@given(rows=st.integers(1, 40), blocks=st.integers(1, 5), codes=st.integers(1, 16), seed=SEEDS)
def test_a_grid_of_4_bits_is_found_whatever_codes_it_uses(rows, blocks, codes, seed):
    weight = on_4_bits((rows, blocks * GRID_BLOCK), seed, codes)
    grid = find_grid(weight)
    values = grid.scales[:, :, None] * (unpack(grid.packed) - 8) + grid.offsets.T[:, :, None]
    np.testing.assert_allclose(values.reshape(weight.shape), weight, atol=2e-6 * max(1.0, np.abs(weight).max()))


@settings(deadline=None, max_examples=60)
@given(rows=st.integers(1, 40), blocks=st.integers(1, 5), seed=SEEDS)
def test_a_grid_of_8_bits_is_found(rows, blocks, seed):
    weight = on_8_bits((rows, blocks * GRID_BLOCK), seed)
    halves = find_halves(weight)
    values = halves.scales[:, :, None] * (16 * (unpack(halves.high) - 8) + unpack(halves.low))
    np.testing.assert_allclose(values.reshape(weight.shape), weight, rtol=1e-6)


@pytest.mark.parametrize("find, make", [(find_grid, on_4_bits), (find_halves, on_8_bits)])
def test_one_entry_off_the_grid_is_noticed(find, make):
    weight = make((600, 64), 7)
    assert find(weight) is not None
    weight[599, 40] *= np.float32(1 + 2**-9)  # what rounding to bfloat16 does
    assert find(weight) is None
    assert find(weight[:, :48]) is None  # no whole blocks


def test_an_int4_engine_of_a_checkpoint_on_grids_gives_the_logits_of_the_float_engine(tiny, tmp_path):
    """Its output head lies on the grid of 8 bits, all other matrices on that of 4."""
    source = shutil.copytree(tiny / "pair-target", tmp_path / "source")
    tensors = load_file(source / "model.safetensors")
    for seed, (name, values) in enumerate(tensors.items()):
        if values.ndim == 2:
            make = on_8_bits if "embed" in name or "lm_head" in name else on_4_bits
            drawn = make(values.shape, seed)
            tensors[name] = (drawn / drawn.std() * np.float32(0.1)).astype(np.float32)
    save_file(tensors, source / "model.safetensors")
    ids = np.load(source / "reference.npz")["input_ids"][0].tolist()
    logits, exact = [], []
    for bits in (32, 4, 8):
        folder = tmp_path / f"engine{bits}"
        folder.mkdir()
        params = {"max_batch_size": 1, "max_input_len": 64, "max_draft_len": 0, "max_seq_len": 128}
        params |= {"speculative_decoding_mode": 1, "weight_bits": bits}
        write_engine(source, params, folder, lambda _: None)
        exact.append(json.loads((folder / "config.json").read_text())["pretrained_config"]["quantization"]["is_exact"])
        logits.append(Engine(folder).forward([Piece(0, 0, ids, len(ids))])[0].copy())
    assert exact == [True, True, False]
    scale = np.abs(logits[0]).max()
    np.testing.assert_allclose(logits[1], logits[0], atol=TOLERANCE * scale)
    assert np.abs(logits[2] - logits[0]).max() > 10 * TOLERANCE * scale
