"""Dialects: which tensors and parameters NVIDIA's Triton templates of one TensorRT-LLM version declare.

The recorded templates are data, one file a version in ``dialects/`` (tests/fixtures/make_dialects.py writes them).
Tensor types that the templates leave open are settled there (``resolved_placeholders``): fp32 logits, fp16 encoder
features and prompt tables.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trt_spec.deploy.pbtxt import Tensor
from trt_spec.errors import SpecError

DIALECT_DIR = Path(__file__).parent / "dialects"
RECORDED_VERSIONS = ("0.14.0", "0.15.0", "0.16.0", "0.17.0", "0.18.2", "0.19.0", "1.3.0rc3")
_LAST_0X, _AFTER_LAST_0X = "0.19.0", ((0, 20), (0, 21))
_FIRST_1X = "1.3.0rc3"  # the only recorded one of the 1.x line, which renamed min_length and random_seed


@dataclass(frozen=True)
class ModelDialect:
    """Tensors and parameters of one model. A parameter's value is its documented default, None where there is none.

    ``open_dtypes`` maps the tensors whose type the template leaves open to the placeholder that fills it. ``steps`` are
    those of an ensemble, as config.pbtxt spells them (model_name, input_map, output_map).
    """

    name: str
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    parameters: Mapping[str, str | None] = field(default_factory=dict)
    fixed_parameters: Mapping[str, str] = field(default_factory=dict)
    open_dtypes: Mapping[str, str] = field(default_factory=dict)
    steps: tuple[Mapping[str, Any], ...] = ()

    def check_parameters(self, names: Mapping[str, str]) -> None:
        """Raise SpecError for a parameter that this version's template does not know: it would be ignored."""
        unknown = [name for name in names if name not in self.parameters and name not in self.fixed_parameters]
        if unknown:
            raise SpecError(
                f"Model {self.name} has no parameter {', '.join(map(repr, unknown))} in this TensorRT-LLM version.",
                remedy=f"Known ones: {', '.join(sorted(self.parameters))}.",
            )


@dataclass(frozen=True)
class Dialect:
    """The templates that serve TensorRT-LLM ``tensorrt_llm``; ``recorded`` is the version they were read in."""

    tensorrt_llm: str
    recorded: str
    trust: str
    provenance: str
    models: Mapping[str, ModelDialect]


def load_dialect(tensorrt_llm_version: str) -> Dialect:
    """Return the dialect of a TensorRT-LLM version, or of the nearest recorded one, which ``trust`` then says.

    Raises SpecError for a version that no recorded template stands for.
    """
    recorded = _resolve_recorded(tensorrt_llm_version)
    document = json.loads((DIALECT_DIR / f"{recorded}.json").read_text(encoding="utf-8"))
    trust = str(document["trust"])
    if recorded != tensorrt_llm_version:
        trust = f"derived for {tensorrt_llm_version} from {recorded}, the nearest recorded version ({trust})"
    return Dialect(
        tensorrt_llm=tensorrt_llm_version,
        recorded=recorded,
        trust=trust,
        provenance=document["provenance"],
        models={name: _parse_model(name, model) for name, model in document["models"].items()},
    )


def _resolve_recorded(version: str) -> str:
    if version in RECORDED_VERSIONS:
        return version
    match = re.match(r"(\d+)\.(\d+)(\.|$)", version)
    if match and int(match[1]) == 1:
        return _FIRST_1X
    if match:
        same_minor = [known for known in RECORDED_VERSIONS if known.startswith(f"{match[1]}.{match[2]}.")]
        if same_minor:
            return same_minor[0]
        if (int(match[1]), int(match[2])) in _AFTER_LAST_0X:
            return _LAST_0X
    raise SpecError(
        f"No Triton templates are recorded for TensorRT-LLM {version!r}.",
        remedy=f"Recorded ones: {', '.join(RECORDED_VERSIONS)}; 0.20, 0.21 and 1.x are derived from their neighbours.",
    )


def _parse_model(name: str, model: Mapping[str, Any]) -> ModelDialect:
    return ModelDialect(
        name=name,
        inputs=tuple(_parse_tensor(row) for row in model["inputs"]),
        outputs=tuple(_parse_tensor(row) for row in model["outputs"]),
        parameters=model["parameters"],
        fixed_parameters=model["fixed_parameters"],
        open_dtypes={
            row["name"]: row["dtype_from"] for row in (*model["inputs"], *model["outputs"]) if "dtype_from" in row
        },
        steps=tuple(model.get("steps", ())),
    )


def _parse_tensor(row: Mapping[str, Any]) -> Tensor:
    reshape = row.get("reshape")
    return Tensor(
        name=row["name"],
        dtype=row["dtype"],
        dims=tuple(row["dims"]),
        optional=row.get("optional", False),
        ragged=row.get("ragged", False),
        reshape=None if reshape is None else tuple(reshape),
    )
