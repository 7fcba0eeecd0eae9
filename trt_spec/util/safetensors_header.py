"""The header of a safetensors file: what it promises about each tensor, checked against the bytes that are there.

Layout: 8 bytes little-endian header length, a JSON header padded with spaces, then the tensors' bytes without gaps. The
safetensors package reads the same layout, but its numpy door has no bfloat16 without ml_dtypes, and its errors name
neither the file nor the tensor.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeGuard

from trt_spec.errors import SpecError

LENGTH_BYTES = 8
ALIGNMENT_BYTES = 8
MAX_HEADER_BYTES = 100_000_000  # the limit of the reference implementation (safetensors/src/tensor.rs)
METADATA_KEY = "__metadata__"

DTYPE_BITS = {
    "BOOL": 8,
    "U8": 8,
    "I8": 8,
    "F8_E4M3": 8,
    "F8_E5M2": 8,
    "F8_E8M0": 8,
    "F4": 4,
    "F6_E2M3": 6,
    "F6_E3M2": 6,
    "U16": 16,
    "I16": 16,
    "F16": 16,
    "BF16": 16,
    "U32": 32,
    "I32": 32,
    "F32": 32,
    "U64": 64,
    "I64": 64,
    "F64": 64,
    "C64": 64,
}

_REMEDY = "Download or convert the file again."


@dataclass(frozen=True)
class TensorSpan:
    """One tensor of a file: dtype in safetensors' spelling, shape, and its bytes counted from the file's start."""

    dtype: str
    shape: tuple[int, ...]
    begin_bytes: int
    end_bytes: int


def load_header(path: Path) -> dict[str, TensorSpan]:
    """Return the tensors of a safetensors file by name, in file order of the header; reads no tensor data.

    Raises SpecError naming the file, and the tensor if it is one, for a file that is missing, cut or malformed.
    """
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            length = header_length(path, file.read(LENGTH_BYTES), size)
            raw = file.read(length)
    except OSError as error:
        raise SpecError(f"Cannot read {path}: {error.strerror}.", remedy=_REMEDY) from error
    return parse_header(path, raw, size)


def header_length(source: Path | str, prefix: bytes, size: int) -> int:
    """Return the bytes of the JSON header that follows ``prefix``, the first 8 bytes of a file of ``size`` bytes.

    ``source`` names the file, which may be elsewhere, in errors. Raises SpecError for a length that cannot be.
    """
    length = int.from_bytes(prefix, "little")
    _check_length(source, len(prefix), length, size)
    return length


def parse_header(source: Path | str, raw: bytes, size: int) -> dict[str, TensorSpan]:
    """Return the tensors in ``raw``, the JSON header of a file of ``size`` bytes; errors as ``load_header``."""
    entries = _parse(source, raw)
    entries.pop(METADATA_KEY, None)
    data_begin = LENGTH_BYTES + len(raw)
    spans = {name: _span(source, name, entry, data_begin) for name, entry in entries.items()}
    _check_layout(source, spans, data_begin, size)
    return spans


def render_header(tensors: Iterable[tuple[str, str, tuple[int, ...]]], metadata: dict[str, str] | None = None) -> bytes:
    """Return the bytes that precede the data of (name, dtype, shape) tensors stored one after another in that order."""
    entries: dict[str, Any] = {} if metadata is None else {METADATA_KEY: metadata}
    offset = 0
    for name, dtype, shape in tensors:
        end = offset + size_bytes(dtype, shape)
        entries[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [offset, end]}
        offset = end
    body = json.dumps(entries, separators=(",", ":"), ensure_ascii=False).encode()
    body += b" " * (-len(body) % ALIGNMENT_BYTES)
    return len(body).to_bytes(LENGTH_BYTES, "little") + body


def size_bytes(dtype: str, shape: tuple[int, ...]) -> int:
    """Return the bytes of a tensor; sub-byte types are rounded up."""
    return -(-math.prod(shape) * DTYPE_BITS[dtype] // 8)


def _check_length(path: Path | str, prefix_bytes: int, length: int, size: int) -> None:
    if prefix_bytes < LENGTH_BYTES:
        raise SpecError(
            f"{path} has {size} bytes, too few for a safetensors file: it is truncated or something else.",
            remedy=_REMEDY,
        )
    if length > MAX_HEADER_BYTES or length == 0:
        raise SpecError(
            f"{path} claims a header of {length} bytes, expected 1 to {MAX_HEADER_BYTES}: not a safetensors file.",
            remedy=_REMEDY,
        )
    if LENGTH_BYTES + length > size:
        raise SpecError(
            f"{path} is truncated: its header alone takes {LENGTH_BYTES + length} bytes, the file has {size}.",
            remedy=_REMEDY,
        )


def _parse(path: Path | str, raw: bytes) -> dict[str, Any]:
    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for name, value in pairs:
            if name in found:
                raise SpecError(f"The header of {path} lists {name!r} twice.", remedy=_REMEDY)
            found[name] = value
        return found

    try:
        header = json.loads(raw, object_pairs_hook=unique)
    except (ValueError, RecursionError) as error:
        raise SpecError(f"The header of {path} is not JSON ({error}).", remedy=_REMEDY) from error
    if not isinstance(header, dict):
        raise SpecError(f"The header of {path} is a JSON {type(header).__name__}, expected an object.", remedy=_REMEDY)
    return header


def _span(path: Path | str, name: str, entry: Any, data_begin: int) -> TensorSpan:
    if not isinstance(entry, dict):
        raise SpecError(f"Tensor {name!r} of {path} is described by {entry!r}, expected an object.", remedy=_REMEDY)
    dtype, shape, offsets = entry.get("dtype"), entry.get("shape"), entry.get("data_offsets")
    if not isinstance(dtype, str) or dtype not in DTYPE_BITS:
        raise SpecError(f"Tensor {name!r} of {path} has the unknown dtype {dtype!r}.", remedy=_REMEDY)
    if not _is_sizes(shape) or not _is_sizes(offsets) or len(offsets) != 2:
        raise SpecError(
            f"Tensor {name!r} of {path} has shape {shape!r}, data_offsets {offsets!r}: expected whole numbers.",
            remedy=_REMEDY,
        )
    span = TensorSpan(dtype, tuple(shape), data_begin + offsets[0], data_begin + offsets[1])
    expected = size_bytes(dtype, span.shape)
    if offsets[1] - offsets[0] != expected:
        raise SpecError(
            f"Tensor {name!r} of {path} has data_offsets {offsets}, but {dtype} {shape} takes {expected} bytes.",
            remedy=_REMEDY,
        )
    return span


def _is_sizes(value: object) -> TypeGuard[list[int]]:
    return isinstance(value, list) and all(type(item) is int and item >= 0 for item in value)


def _check_layout(path: Path | str, spans: dict[str, TensorSpan], data_begin: int, size: int) -> None:
    """The tensors must tile the data exactly: anything else means lost, shared or foreign bytes."""
    ordered = sorted(spans.items(), key=lambda item: (item[1].begin_bytes, item[1].end_bytes))
    position, previous = data_begin, "the header"
    for name, span in ordered:
        if span.end_bytes > size:
            raise SpecError(
                f"{path} is truncated: tensor {name!r} ends at byte {span.end_bytes}, the file has {size}.",
                remedy=_REMEDY,
            )
        if span.begin_bytes != position:
            relation = "overlaps" if span.begin_bytes < position else "leaves a gap after"
            raise SpecError(f"Tensor {name!r} of {path} {relation} {previous!r}.", remedy=_REMEDY)
        position, previous = span.end_bytes, name
    if position != size:
        raise SpecError(f"{path} has {size - position} bytes that belong to no tensor.", remedy=_REMEDY)
