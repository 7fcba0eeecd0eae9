"""Dialects: which tensors and parameters NVIDIA's Triton templates of one TensorRT-LLM version declare.

The recorded templates are data, one file a version in ``dialects/`` (tests/fixtures/make_dialects.py writes them).
Tensor types that the templates leave open are settled there (``resolved_placeholders``): fp32 logits, fp16 encoder
features and prompt tables.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from trt_spec.deploy.pbtxt import Tensor
from trt_spec.errors import SpecError

DIALECT_DIR = Path(__file__).parent / "dialects"
RECORDED_VERSIONS = ("0.14.0", "0.15.0", "0.16.0", "0.17.0", "0.18.2", "0.19.0", "1.3.0rc3")
LOGITS_PLACEHOLDER = "logits_datatype"
_LAST_0X, _AFTER_LAST_0X = "0.19.0", ((0, 20), (0, 21))
_FIRST_1X = "1.3.0rc3"  # the only recorded one of the 1.x line, which renamed min_length and random_seed

_LLMAPI_RECORDED = "1.3.0rc3"


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
    return _read(f"{recorded}.json", tensorrt_llm_version, recorded)


def load_llmapi_template(tensorrt_llm_version: str) -> Dialect:
    """Return the template of Triton's LLM API model: one model, tensorrt_llm. It is recorded for one version.

    Later templates add optional inputs (adapters, images), which NVIDIA's model.py reads by name and does without.
    """
    return _read(f"llmapi-{_LLMAPI_RECORDED}.json", tensorrt_llm_version, _LLMAPI_RECORDED)


def _read(file: str, tensorrt_llm_version: str, recorded: str) -> Dialect:
    document = json.loads((DIALECT_DIR / file).read_text(encoding="utf-8"))
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


def settle_logits(dialect: Dialect, dtype: str) -> Dialect:
    """Return the dialect with Triton's type ``dtype`` for every tensor of logits that the templates leave open.

    Raises SpecError for a type other than FP32 where they leave none open.
    """
    models = {name: _settle_logits(model, dtype) for name, model in dialect.models.items()}
    is_open = any(LOGITS_PLACEHOLDER in model.open_dtypes.values() for model in models.values())
    if dtype != "FP32" and not is_open:
        raise SpecError(
            f"The engines give {dtype} logits, and the templates of TensorRT-LLM {dialect.recorded} know FP32 only.",
            remedy="Build the engines with logits_dtype float32.",
        )
    return replace(dialect, models=models)


def _settle_logits(model: ModelDialect, dtype: str) -> ModelDialect:
    def settle(tensor: Tensor) -> Tensor:
        is_open = model.open_dtypes.get(tensor.name) == LOGITS_PLACEHOLDER
        return replace(tensor, dtype=dtype) if is_open else tensor

    return replace(model, inputs=tuple(map(settle, model.inputs)), outputs=tuple(map(settle, model.outputs)))


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
