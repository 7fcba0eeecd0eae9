"""Initialisers of an ONNX model, streamed to its external data file one tensor at a time."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

DATA_FILE = "model.onnx.data"
ALIGNMENT_BYTES = 4096
"""ONNX Runtime maps tensors whose offset is page-aligned instead of reading them."""


class WeightFile:
    """Writes tensors to ``model.onnx.data`` in ``folder`` and keeps the protobuf entries that point at them."""

    def __init__(self, folder: Path) -> None:
        self._file = (folder / DATA_FILE).open("wb")
        self.initializers: list[onnx.TensorProto] = []

    def __enter__(self) -> WeightFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    def add(self, name: str, values: NDArray[Any]) -> str:
        """Appends ``values`` and returns ``name``; the bytes on disk are little-endian, row-major."""
        self._file.write(b"\0" * (-self._file.tell() % ALIGNMENT_BYTES))
        offset = self._file.tell()
        data = np.ascontiguousarray(values)
        data.tofile(self._file)
        tensor = onnx.TensorProto(
            name=name,
            data_type=onnx.helper.np_dtype_to_tensor_dtype(data.dtype),
            dims=data.shape,
            data_location=onnx.TensorProto.EXTERNAL,
        )
        for key, value in (("location", DATA_FILE), ("offset", str(offset)), ("length", str(data.nbytes))):
            tensor.external_data.add(key=key, value=value)
        self.initializers.append(tensor)
        return name
