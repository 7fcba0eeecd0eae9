from __future__ import annotations

import json
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import save_file

from trt_spec.build.source.checkpoint import Checkpoint, TensorInfo
from trt_spec.errors import SpecError

INDEX = "model.safetensors.index.json"
FIRST, SECOND = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"
A = np.linspace(-3, 3, 12, dtype=np.float32).reshape(3, 4)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    return tmp_path


def shard(folder: Path, weight_map: dict[str, str] | None = None) -> Path:
    save_file({"a": A}, folder / FIRST)
    save_file({"b": A + 1, "c": A + 2}, folder / SECOND)
    weight_map = weight_map or {"a": FIRST, "b": SECOND, "c": SECOND}
    (folder / INDEX).write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))
    return folder


def refused(folder: Path) -> str:
    with pytest.raises(SpecError) as caught:
        Checkpoint.open(folder)
    assert str(folder) in str(caught.value)
    assert caught.value.remedy
    return str(caught.value)


def test_all_three_float_types_load_as_float32(folder: Path) -> None:
    stored = {
        "f32": A,
        "f16": A.astype(np.float16),
        "bf16": A.astype(ml_dtypes.bfloat16),
        "one": np.float32([7]).reshape(()),
    }
    stored["empty"] = np.zeros((0, 4), np.float32)
    save_file(stored, folder / "model.safetensors")
    with Checkpoint.open(folder) as checkpoint:
        assert checkpoint.config == {"model_type": "llama"}
        assert checkpoint.tensors["bf16"] == TensorInfo("BF16", (3, 4))
        loaded = {name: checkpoint.load(name) for name in stored}
    for name, values in stored.items():
        assert loaded[name].dtype == np.float32
        assert loaded[name].shape == values.shape
        assert np.array_equal(loaded[name], values.astype(np.float32)), name
        loaded[name].flat[:] = 0  # writable, and still there after close


def test_shards_are_one_checkpoint(folder: Path) -> None:
    with Checkpoint.open(shard(folder)) as checkpoint:
        assert set(checkpoint.tensors) == {"a", "b", "c"}
        assert np.array_equal(checkpoint.load("a"), A)
        assert np.array_equal(checkpoint.load("c"), A + 2)


def test_tensors_may_begin_at_odd_bytes(folder: Path) -> None:
    header = {"x": {"dtype": "U8", "shape": [1], "data_offsets": [0, 1]}}
    header["y"] = {"dtype": "F32", "shape": [3, 4], "data_offsets": [1, 49]}
    body = json.dumps(header).encode()
    (folder / "model.safetensors").write_bytes(len(body).to_bytes(8, "little") + body + b"!" + A.tobytes())
    with Checkpoint.open(folder) as checkpoint:
        assert np.array_equal(checkpoint.load("y"), A)


def test_opening_reads_no_tensor_data(folder: Path) -> None:
    """A checkpoint of half a terabyte, almost all of it a hole in the file, opens from its header."""
    rows = 1 << 37
    body = json.dumps({"w": {"dtype": "F32", "shape": [rows], "data_offsets": [0, rows * 4]}}).encode()
    with (folder / "model.safetensors").open("wb") as file:
        file.write(len(body).to_bytes(8, "little") + body)
        file.truncate(8 + len(body) + rows * 4)
    with Checkpoint.open(folder) as checkpoint:
        assert checkpoint.tensors == {"w": TensorInfo("F32", (rows,))}


def test_unknown_names_and_types_are_refused_on_load(folder: Path) -> None:
    save_file({"q": A.astype(ml_dtypes.float8_e4m3fn), "i": np.arange(3)}, folder / "model.safetensors")
    with Checkpoint.open(folder) as checkpoint:
        with pytest.raises(SpecError, match=r"'q' of .*model\.safetensors is F8_E4M3, expected one of BF16, F16, F32"):
            checkpoint.load("q")
        with pytest.raises(SpecError, match=r"'i' .* is I64"):
            checkpoint.load("i")
        with pytest.raises(SpecError, match="has no tensor 'z'"):
            checkpoint.load("z")


def test_a_missing_shard_is_named(folder: Path) -> None:
    (shard(folder) / SECOND).unlink()
    assert f"{SECOND} is missing" in refused(folder)


def test_a_truncated_shard_is_named(folder: Path) -> None:
    path = shard(folder) / SECOND
    path.write_bytes(path.read_bytes()[:-1])
    assert f"{SECOND} is truncated: tensor 'c'" in refused(folder)


def test_a_tensor_in_two_shards_is_named(folder: Path) -> None:
    save_file({"a": A, "b": A}, shard(folder) / SECOND)
    assert "Tensor 'a' is in both" in refused(folder)


@pytest.mark.parametrize(
    ("weight_map", "said"),
    [
        ({"a": FIRST, "b": SECOND, "c": SECOND, "d": SECOND}, f"puts tensor 'd' into {SECOND}, but no shard holds it"),
        ({"a": SECOND, "b": FIRST, "c": SECOND}, f"puts tensor 'a' into {SECOND}, but it is in {FIRST}"),
        ({"a": FIRST, "b": SECOND}, "holds tensor 'c', which model.safetensors.index.json lacks"),
        ({"a": "../" + FIRST}, "expected a file name"),
        ({"a": 3}, "expected a file name"),
    ],
)
def test_an_index_that_contradicts_its_shards(folder: Path, weight_map: dict, said: str) -> None:
    assert said in refused(shard(folder, weight_map))


@pytest.mark.parametrize("content", ["{}", '{"weight_map": []}', '{"weight_map": {}}'])
def test_an_index_without_a_map(folder: Path, content: str) -> None:
    (folder / INDEX).write_text(content)
    assert "has no weight_map" in refused(folder)


def test_json_faults_name_the_file(folder: Path) -> None:
    shard(folder)
    (folder / INDEX).write_text("{")
    assert f"{INDEX} is not JSON" in refused(folder)
    (folder / "config.json").write_text("[1]")
    assert "config.json holds a JSON list, expected an object" in refused(folder)
    (folder / "config.json").write_bytes(b"\xff\xfe")
    assert "config.json is not JSON" in refused(folder)
    (folder / "config.json").unlink()
    assert "config.json: No such file" in refused(folder)


def test_a_folder_without_weights(folder: Path) -> None:
    assert "has neither model.safetensors nor" in refused(folder)
