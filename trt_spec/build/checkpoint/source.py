"""The Hugging Face side of a conversion: what is stored, in which quantisation, and slices of it without a copy."""

from __future__ import annotations

import mmap
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from trt_spec.build.checkpoint.casts import STORAGE, Bits, widen
from trt_spec.build.checkpoint.outputs import Piece
from trt_spec.build.source.medusa_heads import find_head_file, load_head_spans, read_head_folder
from trt_spec.build.source.resolve import check_model_folder
from trt_spec.build.source.shards import load_tensor_spans
from trt_spec.build.source.small_files import load_small_files
from trt_spec.errors import SpecError
from trt_spec.plan.model_files import ModelFiles, TensorInfo
from trt_spec.util.safetensors_header import TensorSpan


@dataclass(frozen=True)
class Source:
    """A checkpoint folder by its small files and headers; ``warnings`` are what is odd about it, in sentences.

    ``heads`` are Medusa heads of a folder of their own; their tensors are among ``spans``.
    """

    folder: Path
    files: ModelFiles
    spans: Mapping[str, tuple[Path, TensorSpan]]
    warnings: tuple[str, ...] = ()
    heads: ModelFiles | None = None

    @property
    def tensors(self) -> dict[str, TensorInfo]:
        """Every tensor by name."""
        return {name: TensorInfo(span.dtype, span.shape) for name, (_, span) in self.spans.items()}

    @property
    def shards(self) -> tuple[Path, ...]:
        """The files that hold the tensors."""
        return tuple(sorted({path for path, _ in self.spans.values()}))


def load_source(folder: Path) -> Source:
    """Read the small files and every header of a folder; no tensor data.

    Raises SpecError naming the file, and the tensor where there is one, for anything missing, cut or contradictory.
    """
    check_model_folder(folder)
    spans = load_tensor_spans(folder)
    files = load_small_files(folder, reference=str(folder), origin=f"local folder {folder}", tensors=None)
    read = {path.name for path, _ in spans.values()}
    foreign = sorted(
        path.name
        for path in folder.glob("*.safetensors")
        # Meta's own layout of the same weights, which their repositories and Mistral's carry beside the shards.
        if path.name not in read and not path.name.startswith("consolidated")
    )
    warnings = (f"{', '.join(foreign)}: not part of the checkpoint's index, not read.",) if foreign else ()
    return Source(folder, files, spans, warnings)


def with_heads(source: Source, folder: Path) -> Source:
    """The same checkpoint with the Medusa heads of ``folder``. Raises SpecError for a folder without readable heads."""
    files = read_head_folder(folder, str(folder))
    file, spans = find_head_file(folder), load_head_spans(folder)
    assert file is not None
    return replace(source, heads=files, spans={**source.spans, **{name: (file, span) for name, span in spans.items()}})


@dataclass
class MappedSource:
    """A source's tensor data, memory-mapped while open; safe to read from several threads."""

    source: Source
    _maps: dict[Path, mmap.mmap] = field(default_factory=dict)

    def __enter__(self) -> MappedSource:
        for path in self.source.shards:
            with path.open("rb") as file:
                self._maps[path] = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # A view that an exception still holds keeps its map; the process ends it.
        self._maps.clear()

    def dtype(self, name: str) -> str:
        """Type of a tensor in safetensors' spelling."""
        return self.source.spans[name][1].dtype

    def row_bytes(self, name: str) -> int:
        """Bytes of a whole row of a tensor, whatever part of it is taken."""
        span = self.source.spans[name][1]
        return (span.shape[1] if len(span.shape) == 2 else 1) * STORAGE[span.dtype].itemsize

    def rows(self, piece: Piece, first: int, last: int) -> Bits:
        """Rows [first, last) of a piece as bits, [rows, columns], a view of the mapped file."""
        path, span = self.source.spans[piece.source]
        storage = STORAGE[span.dtype]
        width = span.shape[1] if len(span.shape) == 2 else 1
        start = piece.rows[0] + first
        block: Any = np.frombuffer(
            self._maps[path],
            dtype=storage,
            count=(last - first) * width,
            offset=span.begin_bytes + start * width * storage.itemsize,
        )
        bits: Bits = block.reshape(last - first, width)[:, piece.columns[0] : piece.columns[1]]
        return bits

    def release(self, piece: Piece, first: int, last: int) -> None:
        """Unmap the pages of these rows, so that mapped memory stays bounded; they stay in the page cache."""
        path, span = self.source.spans[piece.source]
        width = self.row_bytes(piece.source)
        begin = span.begin_bytes + (piece.rows[0] + first) * width
        begin -= begin % mmap.PAGESIZE
        end = span.begin_bytes + (piece.rows[0] + last) * width
        self._maps[path].madvise(mmap.MADV_DONTNEED, begin, end - begin)

    def release_file(self, piece: Piece) -> None:
        """Unmap all of the piece's file: the kernel also maps neighbours of what is touched, which would add up.

        Another thread that is reading there gets its pages back from the page cache.
        """
        self._maps[self.source.spans[piece.source][0]].madvise(mmap.MADV_DONTNEED)

    def scalar(self, name: str) -> np.float32:
        """A tensor of one element. Raises SpecError for one that is no positive number: it scales weights."""
        path, span = self.source.spans[name]
        bits = np.frombuffer(self._maps[path], STORAGE[span.dtype], 1, span.begin_bytes)
        value = widen(bits, span.dtype)[0]
        if not (np.isfinite(value) and value > 0):
            raise SpecError(
                f"The scale {name!r} of {path} is {value}, expected a positive number.",
                remedy="Download or export the checkpoint again.",
            )
        return np.float32(value)
