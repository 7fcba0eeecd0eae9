"""Other deployments to measure beside the spec's own: another draft, another way to accept. Pure but for spec files."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from trt_spec.errors import SpecError
from trt_spec.plan.known_models import load_known_model
from trt_spec.spec.load import load_spec
from trt_spec.spec.model import Spec
from trt_spec.spec.self_draft import FINEST_FIRST

_REMEDY = (
    "Name a quantization (int4), layers:N (the first N of the target's, for a draft of model self), or a spec file "
    "with the same target."
)


_KEPT_LAYERS = 5 / 6  # of the target's: enough that some drafts are still right


def worse_drafts(spec: Spec) -> tuple[str, ...]:
    """Drafts that need no other checkpoint, the worst last: coarser quantisations of a draft from the target's own
    weights, then some of its layers. Empty for another draft."""
    draft = spec.draft
    if draft is None or not draft.is_self or draft.quantization not in FINEST_FIRST:
        return ()
    coarser = FINEST_FIRST[FINEST_FIRST.index(draft.quantization) + 1 :]
    layers = _count_layers(spec.target.model) if draft.layers is None else None
    return (*coarser, *((f"layers:{int(layers * _KEPT_LAYERS)}",) if layers and layers > 1 else ()))


def _count_layers(model: str) -> int | None:
    """Of a built-in model or a local checkpoint; None where only a download would tell."""
    known = load_known_model(model)
    try:
        config = known.config if known else json.loads(Path(model, "config.json").read_text(encoding="utf-8"))
        return int(config["num_hidden_layers"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def vary_spec(spec: Spec, system: str) -> Spec:
    """The spec of ``system``: ``int4``, ``layers:25``, ``other.yaml`` or ``accept:logits``. Raises SpecError."""
    if system.endswith((".yaml", ".yml")):
        return _load_other(spec, Path(system))
    kind, _, value = system.partition(":")
    if kind == "accept":
        return _checked(spec, system, {"speculation": {"accept": value}})
    if spec.draft is None:
        raise SpecError(f"The spec {spec.name!r} has no draft that could be another ({system}).", remedy=_REMEDY)
    if kind == "layers" and value.isdecimal():
        return _checked(spec, system, {"draft": {"layers": tuple(range(int(value)))}})
    return _checked(spec, system, {"draft": {"quantization": system}})


def _checked(spec: Spec, system: str, changes: dict[str, dict[str, Any]]) -> Spec:
    values = spec.model_dump()
    for section, fields in changes.items():
        values[section] = {**values[section], **fields}
    try:
        return Spec.model_validate(values)
    except ValidationError as error:
        messages = "; ".join(row["msg"] for row in error.errors())
        raise SpecError(f"--sweep {system}: {messages}.", remedy=_REMEDY) from error


def _load_other(spec: Spec, path: Path) -> Spec:
    other = load_spec(path)
    if other.target != spec.target:
        raise SpecError(
            f"{path} has another target than the spec that is measured, so its speed-up is of something else.",
            remedy="Give it the same target section, or bench it by itself.",
        )
    return other


def folder_of(system: str) -> str:
    """A folder name for the system's workspace."""
    return re.sub(r"[^A-Za-z0-9_.-]+", "-", system.removesuffix(".yaml").removesuffix(".yml")).strip("-.") or "other"
