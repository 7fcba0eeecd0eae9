"""Medusa heads by their files: how many, how deep, and whether they belong to this target.

Two published layouts. A folder of its own holds one file of tensors and a config.json (FasterDecoding/Medusa; read by
TensorRT-LLM's models/medusa/weight.py), a ModelOpt checkpoint holds them among the target's under "medusa_heads.":

    {head}.{layer}.linear.weight  [hidden, hidden]     {head}.{layer}.linear.bias  [hidden]
    {head}.{layers}.weight        [vocabulary, hidden]

In FP8 each weight has a weight_scale and an input_scale beside it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from trt_spec.plan.facts import ModelFacts
from trt_spec.plan.finding import Finding
from trt_spec.plan.model_files import ModelFiles, TensorInfo
from trt_spec.plan.source_quantization import UNQUANTISED, resolve_source_quantization
from trt_spec.spec.medusa import MAX_DEPTH

MEDUSA_ARCHITECTURE = "MedusaForCausalLM"
MODELOPT_PREFIX = "medusa_heads."
FLOATS = ("BF16", "F16", "F32")
FP8 = "F8_E4M3"
SCALES = ("weight_scale", "input_scale")
MAX_LAYERS = 64  # published heads have one, a few two
_NAME = re.compile(r"(\d{1,4})\.(\d{1,4})\.(?:linear\.)?[a-z_]+")
_DOWNLOAD = "Download or export the heads again."


@dataclass(frozen=True)
class MedusaHeads:
    """``count`` heads of ``layers`` residual layers and an output matrix each; ``is_fp8`` if they are stored so."""

    count: int
    layers: int
    is_fp8: bool = False

    def parameters(self, facts: ModelFacts) -> int:
        """Weights and biases of all heads on a target of these shapes."""
        layer = facts.hidden_size * (facts.hidden_size + 1)
        return self.count * (self.layers * layer + facts.vocab_size * facts.hidden_size)


def holds_heads(files: ModelFiles) -> bool:
    """Whether a target's checkpoint says that Medusa heads are in it, as ModelOpt's export does."""
    return isinstance(files.config.get("medusa"), Mapping)


def head_tensors(heads: MedusaHeads, facts: ModelFacts) -> Iterator[tuple[str, tuple[int, ...], bool]]:
    """Name without prefix, shape, and whether FP8 heads store it in FP8: every tensor of every head, scales aside."""
    hidden = facts.hidden_size
    for head in range(heads.count):
        for layer in range(heads.layers):
            yield f"{head}.{layer}.linear.weight", (hidden, hidden), True
            yield f"{head}.{layer}.linear.bias", (hidden,), False
        yield f"{head}.{heads.layers}.weight", (facts.vocab_size, hidden), True


def resolve_heads(
    target: ModelFiles, facts: ModelFacts, heads: ModelFiles | None
) -> tuple[MedusaHeads | None, tuple[Finding, ...]]:
    """The heads of a target, in its own checkpoint if ``heads`` is None, and what stands against them. Pure.

    Without tensor headers (a folder to plan with) config.json alone is believed. None if nothing can be said.
    """
    if heads is not None and holds_heads(target):
        message = f"target: {target.reference} holds Medusa heads of its own, and speculation.heads names others."
        return None, (_refuse("heads-twice", message, "Leave speculation.heads out, or name the plain checkpoint."),)
    if heads is None and not holds_heads(target):
        message = f"target: {target.reference} holds no Medusa heads (its config.json has no section medusa)."
        return None, (_refuse("heads-missing", message, "Name the heads in speculation.heads."),)
    stated = _stated(target.config["medusa"], "num_medusa_") if heads is None else _stated(heads.config, "medusa_num_")
    files, prefix = (target, MODELOPT_PREFIX) if heads is None else (heads, "")
    if files.tensors is None:
        return _believe(stated, files, is_fp8=heads is None and resolve_source_quantization(target) != UNQUANTISED)
    tensors = {name.removeprefix(prefix): info for name, info in files.tensors.items() if name.startswith(prefix)}
    found = _count(tensors)
    if found is None:
        message = f"Medusa heads: {files.reference} has no tensor such as {prefix}0.0.linear.weight."
        return None, (_refuse("heads-missing", message, f"Name the folder of the heads. {_DOWNLOAD}"),)
    findings = (
        *_check_config(heads, files, facts),
        *_compare(stated, found, files),
        *_check_tensors(found, facts, tensors, prefix),
    )
    return found, findings


def _stated(config: Any, prefix: str) -> tuple[Any, Any]:
    """Heads and layers as a config.json says them, None where it does not."""
    section = config if isinstance(config, Mapping) else {}
    return section.get(f"{prefix}heads"), section.get(f"{prefix}layers")


def _believe(
    stated: tuple[Any, Any], files: ModelFiles, *, is_fp8: bool
) -> tuple[MedusaHeads | None, tuple[Finding, ...]]:
    count, layers = stated[0], 1 if stated[1] is None else stated[1]
    if _is_size(count, MAX_DEPTH) and _is_size(layers, MAX_LAYERS):
        return MedusaHeads(count, layers, is_fp8), ()
    message = (
        f"Medusa heads: config.json of {files.reference} says {count!r} heads of {layers!r} layers, expected 1 to "
        f"{MAX_DEPTH} and 1 to {MAX_LAYERS}, and there are no weights to read."
    )
    return None, (_refuse("heads-config", message, _DOWNLOAD),)


def _is_size(value: Any, most: int) -> bool:
    return type(value) is int and 1 <= value <= most


def _count(tensors: Mapping[str, TensorInfo]) -> MedusaHeads | None:
    """Heads and layers by the names that are there; a damaged number cannot make more than are stored."""
    places = [(int(match[1]), int(match[2])) for name in tensors if (match := _NAME.fullmatch(name))]
    linear = [place for place in places if f"{place[0]}.{place[1]}.linear.weight" in tensors]
    if not linear:
        return None
    count, layers = 1 + max(head for head, _ in places), 1 + max(layer for _, layer in linear)
    if count > MAX_DEPTH or layers > MAX_LAYERS:
        return None
    return MedusaHeads(count, layers, any(info.dtype == FP8 for info in tensors.values()))


def _check_config(heads: ModelFiles | None, files: ModelFiles, facts: ModelFacts) -> Iterator[Finding]:
    """Some heads say in their config.json which shapes they were trained for."""
    if heads is None:
        return
    for key, wanted in (("hidden_size", facts.hidden_size), ("vocab_size", facts.vocab_size)):
        stated = files.config.get(key)
        if stated is not None and stated != wanted:
            yield _of_another(files.reference, key, stated, wanted)


def _of_another(reference: str, key: str, found: Any, wanted: int) -> Finding:
    return _refuse(
        "heads-of-another",
        f"Medusa heads: {reference} has {key} {found}, the target {wanted}: they belong to another model.",
        "Name heads that were trained on this target.",
    )


def _compare(stated: tuple[Any, Any], found: MedusaHeads, files: ModelFiles) -> Iterator[Finding]:
    count, layers = stated
    if layers is not None and layers != found.layers:
        yield _refuse(
            "heads-config",
            f"Medusa heads: config.json of {files.reference} says {layers!r} layers, the tensors have {found.layers}.",
            f"Correct config.json, or complete the file. {_DOWNLOAD}",
        )
    if count is None or count == found.count:
        return
    if _is_size(count, MAX_DEPTH) and count > found.count:
        yield _refuse(
            "heads-config",
            f"Medusa heads: config.json of {files.reference} says {count} heads, the file has {found.count}.",
            _DOWNLOAD,
        )
        return
    yield Finding(
        "heads-more-than-stated",
        "warn",
        f"Medusa heads: config.json of {files.reference} says {count!r} heads, the file has {found.count}, which are "
        "all used.",
        "Published configurations are known to say too few (medusa-vicuna-7b-v1.3 says 2); nothing is to be done.",
        "target",
    )


def _check_tensors(
    found: MedusaHeads, facts: ModelFacts, tensors: Mapping[str, TensorInfo], prefix: str
) -> Iterator[Finding]:
    known, dtypes = set(), set()
    for name, shape, is_weight in head_tensors(found, facts):
        known.add(name)
        scales = [f"{name.removesuffix('weight')}{scale}" for scale in SCALES] if found.is_fp8 and is_weight else []
        known.update(scales)
        missing = [need for need in (name, *scales) if need not in tensors]
        if missing:
            yield _refuse("heads-tensor-missing", f"Medusa heads: tensor {prefix}{missing[0]} is missing.", _DOWNLOAD)
            return
        info = tensors[name]
        if info.shape != shape:
            yield _misshapen(f"{prefix}{name}", info.shape, shape, facts)
            return
        if info.dtype not in ((FP8,) if found.is_fp8 and is_weight else FLOATS):
            expected = FP8 if found.is_fp8 and is_weight else " or ".join(FLOATS)
            yield _refuse(
                "heads-dtype", f"Medusa heads: tensor {prefix}{name} is {info.dtype}, expected {expected}.", _DOWNLOAD
            )
            return
        if not (found.is_fp8 and is_weight):
            dtypes.add(info.dtype)
    if len(dtypes) > 1:
        message = f"Medusa heads: the tensors are of {' and '.join(sorted(dtypes))}, expected one data type."
        yield _refuse("heads-dtype", message, _DOWNLOAD)
    unknown = sorted(tensors.keys() - known)
    if unknown:
        message = f"Medusa heads: tensor {prefix}{unknown[0]} belongs to no head of {found.layers} layers."
        yield _refuse("heads-tensor-unknown", message, f"Name the folder of the heads alone. {_DOWNLOAD}")


def _misshapen(name: str, found: tuple[int, ...], wanted: tuple[int, ...], facts: ModelFacts) -> Finding:
    sizes = f"hidden size {facts.hidden_size}, vocabulary {facts.vocab_size}"
    return _refuse(
        "heads-of-another",
        f"Medusa heads: tensor {name} has shape {list(found)}, the target ({sizes}) needs {list(wanted)}.",
        "Name heads that were trained on this target.",
    )


def _refuse(code: str, message: str, remedy: str) -> Finding:
    return Finding(code, "refuse", message, remedy, "target")
