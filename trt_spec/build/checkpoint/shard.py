"""From headers to rank files: which slices of which source tensors make up each tensor of each rank. Pure.

Slices follow TensorRT-LLM's ModelWeightsLoader: a module split by rows takes rows of every part, one split by columns
takes columns and keeps its bias whole, KV heads are repeated where there are more ranks than heads, and a vocabulary
that does not divide is padded with zero rows on the last ranks.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from trt_spec.build.checkpoint.families import find_family
from trt_spec.build.checkpoint.mapping import Part, Row, resolve_sizes
from trt_spec.build.checkpoint.medusa import OURS as MEDUSA
from trt_spec.build.checkpoint.medusa import head_recipe, source_prefix
from trt_spec.build.checkpoint.outputs import (
    Cast,
    Constant,
    Largest,
    OutputTensor,
    Piece,
    QuantiseRows,
    RankPlan,
    Recipe,
    Requantise,
    RotaryTable,
    WrittenWithWeight,
    sort_tensors,
)
from trt_spec.errors import SpecError
from trt_spec.plan.model_files import TensorInfo
from trt_spec.plan.shapes import kv_heads_per_rank, layers_per_rank, padded_vocab_size
from trt_spec.plan.tensors import Split, TensorRow, layer_kinds, layer_rows, stage_rows

FLOATS = ("BF16", "F16", "F32")
FP8 = "F8_E4M3"
_REMEDY = "Download or export the checkpoint again."


@dataclass(frozen=True)
class Sharding:
    """How one source becomes rank files.

    ``stored_fp8`` says that the source's own quantised weights are taken over; ``clamp`` bounds activations (and, where
    rows are quantised here, weights) in rowwise FP8. ``max_draft_len`` is that of a Medusa checkpoint.
    """

    split: Split
    stored_fp8: bool
    clamp: tuple[float, float] | None
    ties_head: bool
    max_draft_len: int = 0


@dataclass
class Headers:
    """The source's tensors, and which of them were used."""

    tensors: Mapping[str, TensorInfo]
    used: set[str] = field(default_factory=set)

    def take(self, name: str, shape: tuple[int, ...], dtypes: tuple[str, ...]) -> None:
        """Raise SpecError unless the source has this tensor as expected; a scalar may be stored as [] or [1]."""
        found = self.tensors.get(name)
        if found is None:
            raise SpecError(f"Tensor {name!r} is missing from the checkpoint.", remedy=_REMEDY)
        if found.shape != shape and not (shape == (1,) and found.shape == ()):
            raise SpecError(
                f"Tensor {name!r} has shape {list(found.shape)}, expected {list(shape)} by config.json.", remedy=_REMEDY
            )
        if found.dtype not in dtypes:
            raise SpecError(f"Tensor {name!r} is {found.dtype}, expected {' or '.join(dtypes)}.", remedy=_REMEDY)
        self.used.add(name)


def plan_ranks(sharding: Sharding, tensors: Mapping[str, TensorInfo]) -> tuple[RankPlan, ...]:
    """All rank files in order, with every source tensor accounted for.

    Raises SpecError naming a tensor that is missing, of the wrong shape or dtype, or that nothing takes.
    """
    headers, split = Headers(tensors), sharding.split
    ranks = tuple(plan_rank(sharding, headers, rank) for rank in range(split.tensor_parallel * split.pipeline_parallel))
    _check_leftovers(sharding, headers)
    return ranks


def plan_rank(sharding: Sharding, headers: Headers, rank: int) -> RankPlan:
    """One rank file; the number of a rank is pipeline rank * tensor-parallel size + tensor rank."""
    split = sharding.split
    pipeline_rank, tensor_rank = divmod(rank, split.tensor_parallel)
    planner = _RankPlanner(sharding, headers, tensor_rank)
    first = sum(layers_per_rank(split.facts.layers, split.pipeline_parallel)[:pipeline_rank])
    tensors = [planner.tensor(row, None, None) for row in stage_rows(split, pipeline_rank)]
    for local, kind in enumerate(layer_kinds(split, pipeline_rank)):
        tensors += [planner.tensor(row, local, first + local) for row in layer_rows(split, kind)]
    return RankPlan(rank, sort_tensors(tensors))


def _check_leftovers(sharding: Sharding, headers: Headers) -> None:
    family = find_family(sharding.split.facts.architecture)
    scales = (re.escape(name).replace(r"\{i\}", r"\d+") for name in family.kv_scales)
    known = re.compile("|".join((*family.ignored, *scales)))
    extra = [name for name in headers.tensors if name not in headers.used and not known.fullmatch(name)]
    if extra:
        others = f" and {len(extra) - 1} more" if len(extra) > 1 else ""
        raise SpecError(
            f"The checkpoint has tensor {extra[0]!r}{others}, which no {sharding.split.facts.architecture} of its "
            "config.json has.",
            remedy="Check that config.json and the weights belong together.",
        )


class _RankPlanner:
    """Finds the recipe of each tensor of one rank."""

    def __init__(self, sharding: Sharding, headers: Headers, tensor_rank: int) -> None:
        self.sharding = sharding
        self.headers = headers
        self.tensor_rank = tensor_rank
        self.facts = sharding.split.facts
        self.family = find_family(self.facts.architecture)
        self.sizes = resolve_sizes(self.facts)

    def tensor(self, row: TensorRow, local: int | None, layer: int | None) -> OutputTensor:
        name = row.name if local is None else row.name.format(i=local)
        return OutputTensor(name, row.dtype, row.shape, self._recipe(row, name, layer))

    def _recipe(self, row: TensorRow, name: str, layer: int | None) -> Recipe:
        if layer is None and "." not in row.name:
            return RotaryTable()
        if name.startswith(MEDUSA):
            return self._head(name)
        ours, _, attribute = row.name.rpartition(".")
        if attribute == "clamp_val":
            assert self.sharding.clamp is not None
            return Constant(self.sharding.clamp)
        if attribute in ("kv_cache_scaling_factor", "kv_cache_rcp_scaling_factor"):
            return self._kv_scale(layer, reciprocal="rcp" in attribute)
        source = self.family.row(ours)
        parts = [Part(part.theirs.format(i=layer), part.rows, part.columns) for part in source.parts]
        if attribute == "weight":
            return self._weight(source, parts, row, name)
        if attribute == "bias":
            return Cast(tuple(self._bias(source, part) for part in parts), shared=source.split == "columns")
        if attribute == "per_channel_scale":
            return self._stored_row_scales(source, parts) if self.sharding.stored_fp8 else WrittenWithWeight()
        scale = {"weights_scaling_factor": "weight_scale", "activation_scaling_factor": "input_scale"}[attribute]
        return Largest(self._scalars(parts, scale))

    def _head(self, name: str) -> Recipe:
        split, headers = self.sharding.split, self.headers
        assert split.medusa is not None
        rank, prefix = (self.tensor_rank, split.tensor_parallel), source_prefix(headers.tensors)
        return head_recipe(name, split.medusa, self.facts, rank, prefix, headers.take)

    def _weight(self, source: Row, parts: list[Part], row: TensorRow, name: str) -> Recipe:
        quantised = row.dtype == FP8
        if source.split == "vocab" and self.sharding.ties_head:
            parts = list(self.family.row("transformer.vocab_embedding").parts)
        dtypes = (FP8,) if quantised and self.sharding.stored_fp8 else FLOATS
        pieces = tuple(self._piece(source, part, dtypes) for part in parts)
        if quantised and not self.sharding.stored_fp8:
            return QuantiseRows(pieces, name.removesuffix("weight") + "per_channel_scale")
        if quantised and len(parts) > 1 and self.sharding.split.quantization == "fp8":
            return Requantise(pieces, self._scalars(parts, "weight_scale"))
        whole = source.split == "none" or (source.split == "embedding" and self.sharding.split.embedding_axis is None)
        return Cast(pieces, shared=whole)

    def _piece(self, source: Row, part: Part, dtypes: tuple[str, ...]) -> Piece:
        rows = self.sizes[part.rows]
        columns = 1 if part.columns is None else self.sizes[part.columns]
        shape = (rows,) if part.columns is None else (rows, columns)
        self.headers.take(f"{part.theirs}.weight", shape, dtypes)
        by_columns = source.split == "columns" or (
            source.split == "embedding" and self.sharding.split.embedding_axis == 1
        )
        return Piece(
            f"{part.theirs}.weight",
            (0, rows) if by_columns else self._rows(source, part),
            self._even(columns) if by_columns else (0, columns),
        )

    def _bias(self, source: Row, part: Part) -> Piece:
        self.headers.take(f"{part.theirs}.bias", (self.sizes[part.rows],), FLOATS)
        # A bias of a module split by columns is added once, after the sum over the ranks: all of them keep it.
        rows = (0, self.sizes[part.rows]) if source.split == "columns" else self._rows(source, part)
        return Piece(f"{part.theirs}.bias", rows, (0, 1))

    def _rows(self, source: Row, part: Part) -> tuple[int, int]:
        size, tp = self.sizes[part.rows], self.sharding.split.tensor_parallel
        if source.split == "none" or (source.split == "embedding" and self.sharding.split.embedding_axis is None):
            return 0, size
        if source.split in ("vocab", "embedding"):
            share = padded_vocab_size(size, tp) // tp
            return min(self.tensor_rank * share, size), min((self.tensor_rank + 1) * share, size)
        if part.rows == "kv":
            first = self.tensor_rank * self.facts.kv_heads // tp * self.facts.head_dim
            return first, first + kv_heads_per_rank(self.facts, tp) * self.facts.head_dim
        return self._even(size)

    def _even(self, size: int) -> tuple[int, int]:
        share = size // self.sharding.split.tensor_parallel
        return self.tensor_rank * share, (self.tensor_rank + 1) * share

    def _scalars(self, parts: list[Part], attribute: str) -> tuple[str, ...]:
        names = tuple(f"{part.theirs}.{attribute}" for part in parts)
        for name in names:
            self.headers.take(name, (1,), FLOATS)
        return names

    def _kv_scale(self, layer: int | None, *, reciprocal: bool) -> Largest:
        names = tuple(name.format(i=layer) for name in self.family.kv_scales)
        # As NVIDIA's Attention.postprocess: unless both are there, the scale is 1.
        if not all(name in self.headers.tensors for name in names):
            return Largest((), reciprocal)
        for name in names:
            self.headers.take(name, (1,), FLOATS)
        return Largest(names, reciprocal)

    def _stored_row_scales(self, source: Row, parts: list[Part]) -> Cast:
        pieces = []
        for part in parts:
            name, rows = f"{part.theirs}.weight_scale", self.sizes[part.rows]
            stored = self.headers.tensors.get(name)
            self.headers.take(name, (rows,) if stored is not None and len(stored.shape) == 1 else (rows, 1), FLOATS)
            whole = source.split == "columns"
            pieces.append(Piece(name, (0, rows) if whole else self._rows(source, part), (0, 1)))
        return Cast(tuple(pieces), shared=source.split == "columns")
