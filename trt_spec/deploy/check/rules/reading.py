"""Values of a config.pbtxt and of the engine it names, whatever stands there: a wrong type reads as None.

Parameters are read as the C++ backend does (tensorrtllm_backend v0.18.2, inflight_batcher_llm/src/model_state.cc):
a missing, empty or unfilled one is unset, and so is a flag or number that does not parse.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from trt_spec.deploy.check.engine_config import section
from trt_spec.deploy.check.kinds import is_placeholder
from trt_spec.deploy.check.view import ModelView, RepositoryView

_INTEGER = re.compile(r"\s*(-?[0-9]{1,18})\s*", re.ASCII)
_FLAGS = {"true": True, "1": True, "false": False, "0": False}


def parameter(model: ModelView, key: str) -> str | None:
    """The value of a parameter, None where it is missing, empty or an unfilled placeholder."""
    value = model.config.parameters.get(key, "") if model.config else ""
    return None if not value or is_placeholder(value) else value


def flag(model: ModelView, key: str) -> bool | None:
    """A parameter that says true or false, None if it is unset or says neither."""
    return _FLAGS.get((parameter(model, key) or "").lower())


def integer(model: ModelView, key: str) -> int | None:
    """A parameter that is a whole number, None if it is unset or none."""
    match = _INTEGER.fullmatch(parameter(model, key) or "")
    return int(match[1]) if match else None


def fraction(model: ModelView, key: str) -> float | None:
    """A parameter that is a decimal number, None if it is unset or none."""
    try:
        return float(parameter(model, key) or "")
    except ValueError:
        return None


def id_lists(model: ModelView, key: str) -> tuple[tuple[int, ...], ...] | None:
    """Lists of ids, one an instance of the model ("0,1;2,3"), None if a word is no number; empty if unset."""
    value = parameter(model, key)
    if value is None:
        return ()
    lists = [_INTEGER.fullmatch(word) for part in value.split(";") if part.strip() for word in part.split(",")]
    if not all(lists):
        return None
    return tuple(tuple(int(word) for word in part.split(",")) for part in value.split(";") if part.strip())


def build_config(view: RepositoryView, model: str) -> Mapping[str, Any]:
    """``build_config`` of the engine that a model names, empty where that is not known here."""
    engine = view.engines.get(model)
    return section(engine.config if engine else None, "build_config")


def pretrained_config(view: RepositoryView, model: str) -> Mapping[str, Any]:
    """``pretrained_config`` of the engine that a model names, empty where that is not known here."""
    engine = view.engines.get(model)
    return section(engine.config if engine else None, "pretrained_config")


def plugin_config(view: RepositoryView, model: str) -> Mapping[str, Any]:
    """``plugin_config`` of a TensorRT engine; an ONNX engine has none."""
    return section(build_config(view, model), "plugin_config")
