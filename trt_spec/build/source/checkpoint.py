"""Reading a Hugging Face checkpoint: what it holds from headers alone, and one tensor at a time as float32."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import numpy.typing as npt

from trt_spec.errors import SpecError
from trt_spec.util.bfloat16 import bf16_to_float32
from trt_spec.util.safetensors_header import TensorSpan, load_header

SINGLE_NAME = "model.safetensors"
INDEX_NAME = "model.safetensors.index.json"
CONFIG_NAME = "config.json"

_STORED_AS = {"F32": "<f4", "F16": "<f2", "BF16": "<u2"}
_REMEDY = "Download or convert the checkpoint again."


@dataclass(frozen=True)
class TensorInfo:
    """What a header says of a tensor; dtype in safetensors' spelling: BF16, F16, F32, ..."""

    dtype: str
    shape: tuple[int, ...]


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
        if (folder / SINGLE_NAME).exists():
            shards = [folder / SINGLE_NAME]
            weight_map = None
        elif (folder / INDEX_NAME).exists():
            weight_map = _load_weight_map(folder / INDEX_NAME)
            shards = [folder / name for name in sorted(set(weight_map.values()))]
        else:
            raise SpecError(f"{folder} has neither {SINGLE_NAME} nor {INDEX_NAME}.", remedy=_REMEDY)
        spans = _load_spans(shards)
        if weight_map is not None:
            _check_index(folder / INDEX_NAME, weight_map, spans)
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


def load_json_object(path: Path) -> dict[str, Any]:
    """Return a JSON file that holds an object. Raises SpecError naming the file."""
    try:
        document = json.loads(path.read_bytes())
    except OSError as error:
        raise SpecError(f"Cannot read {path}: {error.strerror}.", remedy=_REMEDY) from error
    except (ValueError, RecursionError) as error:
        raise SpecError(f"{path} is not JSON ({error}).", remedy=_REMEDY) from error
    if not isinstance(document, dict):
        raise SpecError(f"{path} holds a JSON {type(document).__name__}, expected an object.", remedy=_REMEDY)
    return document


def _load_weight_map(path: Path) -> dict[str, str]:
    weight_map = load_json_object(path).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise SpecError(f"{path} has no weight_map that names tensors and their shards.", remedy=_REMEDY)
    for name, shard in weight_map.items():
        # A shard is a file beside its index; anything else would read elsewhere on the disk.
        if not isinstance(shard, str) or Path(shard).name != shard:
            raise SpecError(f"{path} puts tensor {name!r} into {shard!r}, expected a file name.", remedy=_REMEDY)
    return weight_map


def _load_spans(shards: list[Path]) -> dict[str, tuple[Path, TensorSpan]]:
    spans: dict[str, tuple[Path, TensorSpan]] = {}
    for path in shards:
        if not path.is_file():
            raise SpecError(f"The shard {path} is missing, though the index names it.", remedy=_REMEDY)
        for name, span in load_header(path).items():
            if name in spans:
                raise SpecError(f"Tensor {name!r} is in both {spans[name][0]} and {path}.", remedy=_REMEDY)
            spans[name] = (path, span)
    return spans


def _check_index(path: Path, weight_map: dict[str, str], spans: dict[str, tuple[Path, TensorSpan]]) -> None:
    for name, shard in weight_map.items():
        if name not in spans:
            raise SpecError(f"{path} puts tensor {name!r} into {shard}, but no shard holds it.", remedy=_REMEDY)
        if spans[name][0].name != shard:
            raise SpecError(
                f"{path} puts tensor {name!r} into {shard}, but it is in {spans[name][0].name}.", remedy=_REMEDY
            )
    unlisted = sorted(spans.keys() - weight_map.keys())
    if unlisted:
        raise SpecError(
            f"{spans[unlisted[0]][0]} holds tensor {unlisted[0]!r}, which {path.name} lacks.", remedy=_REMEDY
        )
