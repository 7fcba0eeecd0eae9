"""The language in which a family says where each tensor of a TensorRT-LLM checkpoint comes from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from trt_spec.plan.facts import ModelFacts
from trt_spec.plan.toolchain.profile import CheckpointDialect

Dim = Literal["vocab", "hidden", "inner", "q", "kv"]
"""A size of the model: ``q`` and ``kv`` are heads times head size, ``inner`` is the MLP's."""

Axis = Literal["rows", "columns", "vocab", "embedding", "none"]
"""What tensor-parallel ranks share: output rows, input columns, rows of a padded vocabulary, the embedding as asked."""


@dataclass(frozen=True)
class Part:
    """A module of the Hugging Face checkpoint; its weight is [rows, columns], or a vector without columns."""

    theirs: str
    rows: Dim
    columns: Dim | None = None


@dataclass(frozen=True)
class Row:
    """A module of ours: its parts stacked row upon row, each split over the ranks first. ``{i}`` counts layers."""

    ours: str
    parts: tuple[Part, ...]
    split: Axis


@dataclass(frozen=True)
class Family:
    """Everything that conversion needs to know of an architecture.

    ``kv_scales`` are the tensors whose larger value scales the KV cache; ``ignored`` are regular expressions of tensors
    that a source may have and no checkpoint takes. ``config`` are the keys of config.json that only this family has.
    """

    rows: tuple[Row, ...]
    kv_scales: tuple[str, ...]
    ignored: tuple[str, ...]
    config: Mapping[CheckpointDialect, Mapping[str, Any]]

    def row(self, ours: str) -> Row:
        """The row of one of our modules, with ``{i}`` for the layer."""
        return next(row for row in self.rows if row.ours == ours)


def resolve_sizes(facts: ModelFacts) -> dict[Dim, int]:
    """The elements that each named size stands for."""
    return {
        "vocab": facts.vocab_size,
        "hidden": facts.hidden_size,
        "inner": facts.intermediate_size,
        "q": facts.heads * facts.head_dim,
        "kv": facts.kv_heads * facts.head_dim,
    }
