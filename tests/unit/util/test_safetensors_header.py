from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import save_file

from trt_spec.errors import SpecError
from trt_spec.util.safetensors_header import TensorSpan, load_header, render_header


def entry(begin: int, end: int, shape: list[int] | None = None, dtype: str = "U8") -> dict[str, Any]:
    return {"dtype": dtype, "shape": [end - begin] if shape is None else shape, "data_offsets": [begin, end]}


def write(path: Path, header: Any, data: bytes = b"", length: int | None = None) -> Path:
    body = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes((len(body) if length is None else length).to_bytes(8, "little") + body + data)
    return path


def test_spans_point_at_the_bytes(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    arrays = {"x": np.arange(6, dtype=np.int32).reshape(2, 3), "y": np.float16([1, 2]), "z": np.zeros((0, 5))}
    save_file(arrays, path, metadata={"format": "pt"})
    content = path.read_bytes()
    spans = load_header(path)
    assert {name: (span.dtype, span.shape) for name, span in spans.items()} == {
        "x": ("I32", (2, 3)),
        "y": ("F16", (2,)),
        "z": ("F64", (0, 5)),
    }
    for name, array in arrays.items():
        assert content[spans[name].begin_bytes : spans[name].end_bytes] == array.tobytes()


def test_a_rendered_header_is_read_by_both(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    header = render_header([("é", "BF16", (2, 3)), ("s", "F32", ())], {"format": "pt"})
    assert len(header) % 8 == 0
    path.write_bytes(header + bytes(16))
    assert load_header(path) == {
        "é": TensorSpan("BF16", (2, 3), len(header), len(header) + 12),
        "s": TensorSpan("F32", (), len(header) + 12, len(header) + 16),
    }
    with safe_open(path, "numpy") as file:
        assert file.metadata() == {"format": "pt"}
        assert file.get_slice("é").get_shape() == [2, 3]


@pytest.mark.parametrize("content", [b"", b"1234567"])
def test_too_short_for_anything(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a").write_bytes(content)
    with pytest.raises(SpecError, match=f"a has {len(content)} bytes, too few"):
        load_header(tmp_path / "a")


@pytest.mark.parametrize(
    ("length", "said"),
    [
        (0, "claims a header of 0 bytes"),
        (10**12, "claims a header of 1000000000000 bytes"),
        (5000, "header alone takes 5008"),
    ],
)
def test_absurd_header_lengths(tmp_path: Path, length: int, said: str) -> None:
    with pytest.raises(SpecError, match=said):
        load_header(write(tmp_path / "a", {}, length=length))


@pytest.mark.parametrize(
    ("header", "data", "said"),
    [
        (b"{", b"", "is not JSON"),
        (b"\xff{}", b"", "is not JSON"),
        (b"[" * 100_000, b"", "is not JSON"),
        ([1], b"", "is a JSON list, expected an object"),
        (b'{"x": {}, "x": {}}', b"", "lists 'x' twice"),
        ({"x": 3}, b"", "'x' .* is described by 3"),
        ({"x": entry(0, 4, dtype="Q4")}, bytes(4), "'x' .* unknown dtype 'Q4'"),
        ({"x": entry(0, 4, dtype=None)}, bytes(4), "'x' .* unknown dtype None"),  # type: ignore[arg-type]
        ({"x": entry(0, 4, shape=[-4])}, bytes(4), r"'x' .* has shape \[-4\]"),
        ({"x": entry(0, 4, shape=[True])}, bytes(4), r"'x' .* has shape \[True\]"),
        ({"x": {"dtype": "U8", "shape": [4], "data_offsets": [4]}}, bytes(4), r"data_offsets \[4\]"),
        ({"x": entry(0, 4, shape=[5])}, bytes(4), r"'x' .* but U8 \[5\] takes 5 bytes"),
        ({"x": entry(4, 0, shape=[4])}, bytes(4), "'x' .* takes 4 bytes"),
        ({"x": entry(0, 4)}, bytes(3), "is truncated: tensor 'x' ends at byte"),
        ({"x": entry(0, 4), "y": entry(2, 6)}, bytes(6), "'y' .* overlaps 'x'"),
        ({"x": entry(0, 4), "y": entry(0, 4)}, bytes(4), "'y' .* overlaps 'x'"),
        ({"x": entry(0, 4), "y": entry(6, 8)}, bytes(8), "'y' .* leaves a gap after 'x'"),
        ({"x": entry(2, 4)}, bytes(4), "'x' .* leaves a gap after 'the header'"),
        ({"x": entry(0, 4)}, bytes(7), "has 3 bytes that belong to no tensor"),
    ],
)
def test_faults_name_file_and_tensor(tmp_path: Path, header: Any, data: bytes, said: str) -> None:
    path = write(tmp_path / "broken.safetensors", header, data)
    with pytest.raises(SpecError, match=said) as caught:
        load_header(path)
    assert str(path) in str(caught.value)
    assert caught.value.remedy


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"Cannot read .*none: No such file"):
        load_header(tmp_path / "none")
