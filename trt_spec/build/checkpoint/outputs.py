"""What a rank file will hold: each tensor with the recipe of its bytes. Made from headers alone, before any data."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from trt_spec.util.safetensors_header import render_header, size_bytes

# The order of NVIDIA's files: safetensors sorts by alignment, widest first, then by name.
_DTYPE_ORDER = ("F32", "F16", "BF16", "F8_E4M3")


@dataclass(frozen=True)
class Piece:
    """Rows and columns [from, to) of a source tensor; a vector has one column."""

    source: str
    rows: tuple[int, int]
    columns: tuple[int, int]


@dataclass(frozen=True)
class Cast:
    """Pieces stacked row upon row in the output's dtype, zeros below them; ``shared`` ones are alike on all ranks."""

    pieces: tuple[Piece, ...]
    shared: bool = False


@dataclass(frozen=True)
class Requantise:
    """FP8 pieces brought from a scale of their own (a source scalar each) to the largest of these scales."""

    pieces: tuple[Piece, ...]
    scales: tuple[str, ...]


@dataclass(frozen=True)
class QuantiseRows:
    """Pieces quantised to FP8 with a scale for each row, which goes to the tensor ``scale_tensor`` of the same file."""

    pieces: tuple[Piece, ...]
    scale_tensor: str


@dataclass(frozen=True)
class WrittenWithWeight:
    """Row scales: the weight's QuantiseRows writes them."""


@dataclass(frozen=True)
class Largest:
    """The largest of source scalars (or its reciprocal); 1 where the source has none."""

    scalars: tuple[str, ...]
    reciprocal: bool = False


@dataclass(frozen=True)
class Constant:
    """Values known beforehand."""

    values: tuple[float, ...]


@dataclass(frozen=True)
class RotaryTable:
    """A table of the rotary embedding, by the tensor's own name."""


Recipe = Cast | Requantise | QuantiseRows | WrittenWithWeight | Largest | Constant | RotaryTable


@dataclass(frozen=True)
class OutputTensor:
    """A tensor of a rank file; dtype in safetensors' spelling."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    recipe: Recipe

    @property
    def total_bytes(self) -> int:
        """Bytes of the tensor in the file."""
        return size_bytes(self.dtype, self.shape)


@dataclass(frozen=True)
class RankPlan:
    """One rank file; ``tensors`` in file order."""

    rank: int
    tensors: tuple[OutputTensor, ...]

    @property
    def file_name(self) -> str:
        """The name that trtllm-build looks for."""
        return f"rank{self.rank}.safetensors"

    @cached_property
    def header(self) -> bytes:
        """The bytes before the first tensor."""
        return render_header((tensor.name, tensor.dtype, tensor.shape) for tensor in self.tensors)

    @cached_property
    def offsets(self) -> dict[str, int]:
        """Where each tensor begins, in bytes from the start of the file."""
        offsets, position = {}, len(self.header)
        for tensor in self.tensors:
            offsets[tensor.name] = position
            position += tensor.total_bytes
        return offsets

    @property
    def scalars(self) -> frozenset[str]:
        """The source scalars that scale its tensors."""
        recipes = [tensor.recipe for tensor in self.tensors]
        largest = {name for recipe in recipes if isinstance(recipe, Largest) for name in recipe.scalars}
        return frozenset(largest.union(*(recipe.scales for recipe in recipes if isinstance(recipe, Requantise))))

    @cached_property
    def total_bytes(self) -> int:
        """Bytes of the whole file."""
        return len(self.header) + sum(tensor.total_bytes for tensor in self.tensors)


def sort_tensors(tensors: list[OutputTensor]) -> tuple[OutputTensor, ...]:
    """File order."""
    return tuple(sorted(tensors, key=lambda tensor: (_DTYPE_ORDER.index(tensor.dtype), tensor.name)))
