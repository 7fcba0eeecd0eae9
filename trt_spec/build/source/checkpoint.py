"""Reading a Hugging Face checkpoint: what it holds from headers alone, and one tensor at a time as float32."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import numpy.typing as npt

from trt_spec.build.source.shards import CONFIG_NAME, load_json_object, load_tensor_spans
from trt_spec.errors import SpecError
from trt_spec.plan.model_files import TensorInfo
from trt_spec.util.bfloat16 import bf16_to_float32
from trt_spec.util.safetensors_header import TensorSpan

_STORED_AS = {"F32": "<f4", "F16": "<f2", "BF16": "<u2"}
COMPARED_BYTES = 1 << 24
_REMEDY = "Download or convert the checkpoint again."


class Checkpoint:
    """A checkpoint of one file or of shards with an index, memory-mapped while open.

    ``config`` is config.json, ``tensors`` every tensor by name. Use as a context manager.
    """

    def __init__(self, folder: Path, config: dict[str, Any], spans: dict[str, tuple[Path, TensorSpan]]) -> None:
        self.folder = folder
        self.config = config
        self.tensors = {name: TensorInfo(span.dtype, span.shape) for name, (_, span) in spans.items()}
        self._spans = spans
        self._maps: dict[Path, np.memmap[Any, Any]] = {}

    @classmethod
    def open(cls, folder: Path) -> Checkpoint:
        """Read config.json and every header, no tensor data.

        Raises SpecError naming the file, and the tensor where there is one, for anything missing, cut or contradictory.
        """
        config = load_json_object(folder / CONFIG_NAME)
        spans = load_tensor_spans(folder)
        return cls(folder, config, spans)

    def load(self, name: str) -> npt.NDArray[np.float32]:
        """Return a tensor as float32, a copy of the checkpoint's shape (4 bytes an element, whatever the source).

        Raises SpecError for a name that is not there and for a dtype other than BF16, F16 and F32.
        """
        if name not in self._spans:
            raise SpecError(f"The checkpoint {self.folder} has no tensor {name!r}.", remedy=_REMEDY)
        path, span = self._spans[name]
        if span.dtype not in _STORED_AS:
            raise SpecError(
                f"Tensor {name!r} of {path} is {span.dtype}, expected one of {', '.join(sorted(_STORED_AS))}.",
                remedy="Start from the model's unquantised checkpoint.",
            )
        raw = self._map(path)[span.begin_bytes : span.end_bytes]
        # A tensor may begin at any byte, so copy before looking at it as numbers.
        stored = np.frombuffer(raw.tobytes(), dtype=_STORED_AS[span.dtype]).reshape(span.shape)
        if span.dtype == "BF16":
            return bf16_to_float32(stored)
        return stored.astype(np.float32)

    def are_equal(self, first: str, second: str) -> bool:
        """Whether two tensors are stored alike, bytes, dtype and shape; read in pieces, nothing is copied whole."""
        if self.tensors[first] != self.tensors[second]:
            return False
        ours, theirs = (
            self._map(path)[span.begin_bytes : span.end_bytes]
            for path, span in (self._spans[first], self._spans[second])
        )
        pieces = range(0, len(ours), COMPARED_BYTES)
        return all(np.array_equal(ours[at : at + COMPARED_BYTES], theirs[at : at + COMPARED_BYTES]) for at in pieces)

    def close(self) -> None:
        """Drop the memory maps; loaded tensors stay valid, further loads map again."""
        self._maps.clear()

    def __enter__(self) -> Checkpoint:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _map(self, path: Path) -> np.memmap[Any, Any]:
        if path not in self._maps:
            self._maps[path] = np.memmap(path, dtype=np.uint8, mode="r")
        return self._maps[path]
