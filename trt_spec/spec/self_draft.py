"""Rules of a draft from the target's own weights: ``draft: {model: self, layers: ..., quantization: ...}``."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trt_spec.spec.model import Draft, Spec

SELF = "self"
"""What draft.model says in place of a checkpoint."""

FINEST_FIRST = ("none", "int8", "int4")
"""Quantisations of backend onnx, each of fewer bits than the one before."""


def judge_self_draft(spec: Spec, draft: Draft) -> Iterator[tuple[str, str]]:
    """Every rule broken, as the draft's key and a message. How many layers the target has, the plan knows."""
    if draft.model != SELF:
        if draft.layers is not None:
            yield "layers", f"found layers to keep, expected `model: {SELF}`: they are those of the target's checkpoint"
        return
    if spec.backend != "onnx":
        yield "model", f"found {SELF}, backend {spec.backend} expects a model: {_way_out(spec)}"
        return
    if draft.revision is not None:
        yield "revision", f'found "{draft.revision}", expected none: the checkpoint is the target\'s, of its revision'
    if draft.layers is not None:
        yield from _judge_layers(draft.layers)
    yield from _judge_quantization(spec, draft)


def _way_out(spec: Spec) -> str:
    if spec.backend == "engine":
        return (
            "it builds every engine from a checkpoint of its own. A quantised copy of an unquantised target is its "
            f"model named again, `{{model: {spec.target.model}, quantization: fp8}}`; for fewer layers, save a "
            "checkpoint that has only those and name its folder"
        )
    return (
        "TensorRT-LLM loads a draft from a checkpoint as it is. Save one with fewer layers, or quantised, and name its "
        "folder; `speculation: {mode: ngram}` needs no draft at all"
    )


def _judge_layers(layers: tuple[int, ...]) -> Iterator[tuple[str, str]]:
    fall = next((pair for pair in pairwise(layers) if pair[0] >= pair[1]), None)
    if fall is not None:
        yield "layers", f"found {fall[1]} after {fall[0]}, expected rising numbers: the order of layers cannot change"


def _judge_quantization(spec: Spec, draft: Draft) -> Iterator[tuple[str, str]]:
    ours, theirs = spec.target.quantization, draft.quantization
    if ours not in FINEST_FIRST or theirs not in FINEST_FIRST:
        return  # the rule for each model refuses it
    coarser = FINEST_FIRST[FINEST_FIRST.index(ours) + 1 :]
    if theirs == ours and draft.layers is None:
        or_coarser = f", or quantization {' or '.join(coarser)}" if coarser else ""
        yield (
            "quantization",
            f"found {theirs} and all layers, as in the target, expected layers to keep{or_coarser}: otherwise the "
            "draft is the target",
        )
    elif theirs not in (ours, *coarser):
        yield (
            "quantization",
            f"found {theirs}, expected {' or '.join((ours, *coarser))}: a draft finer than its target costs too much",
        )
