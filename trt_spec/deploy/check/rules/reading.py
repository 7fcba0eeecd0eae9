"""Values of a config.pbtxt and of the engine it names, whatever stands there: a wrong type reads as None.

Parameters are read as the C++ backend does (tensorrtllm_backend v0.18.2, inflight_batcher_llm/src/model_state.cc):
a missing, empty or unfilled one is unset, and so is a flag or number that does not parse. Numbers are read from the
beginning of the text by std::stoi and std::stof, whatever follows.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from trt_spec.deploy.check.engine_config import section
from trt_spec.deploy.check.kinds import is_placeholder
from trt_spec.deploy.check.view import ModelView, RepositoryView
from trt_spec.plan.steps import SPECULATIVE_DECODING_MODE

_INTEGER = re.compile(r"\s*(-?[0-9]{1,18})\s*", re.ASCII)
_BEGINS_WITH_INTEGER = re.compile(r"\s*([+-]?[0-9]+)", re.ASCII)
_BEGINS_WITH_FRACTION = re.compile(
    r"\s*([+-]?(?:inf(?:inity)?|nan|(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:e[+-]?[0-9]+)?))", re.ASCII | re.IGNORECASE
)
_MAX_DIGITS = 40  # no type holds more, and Python refuses to read thousands
_MAX_FLOAT = 3.4028235e38

# What the C++ types hold; a number outside does not parse. size_t takes negative ones, and wraps them around.
INT32, INT64, UINT32 = (-(1 << 31), (1 << 31) - 1), (-(1 << 63), (1 << 64) - 1), (-(1 << 32), (1 << 64) - 1)

MODE = "draft_tokens_external"
DRAFT_TARGET_MODES = (SPECULATIVE_DECODING_MODE[MODE], MODE, MODE.upper())
"""How a config.json spells the mode of an engine that verifies drafted tokens."""

FLAGS = {
    "true": True,
    "True": True,
    "TRUE": True,
    "1": True,
    "false": False,
    "False": False,
    "FALSE": False,
    "0": False,
}
"""The words of a bool."""


def parameter(model: ModelView, key: str) -> str | None:
    """The value of a parameter, None where it is missing, empty or an unfilled placeholder."""
    value = model.config.parameters.get(key, "") if model.config else ""
    return None if not value or is_placeholder(value) else value


def flag(model: ModelView, key: str) -> bool | None:
    """A parameter that says true or false, None if it is unset or says neither."""
    return FLAGS.get(parameter(model, key) or "")


def integer(model: ModelView, key: str) -> int | None:
    """A parameter that is a whole number, None if it is unset or none."""
    return read_integer(parameter(model, key) or "", INT32)


def fraction(model: ModelView, key: str) -> float | None:
    """A parameter that is a decimal number, None if it is unset or none."""
    return read_fraction(parameter(model, key) or "")


def read_integer(text: str, span: tuple[int, int]) -> int | None:
    """The whole number that a text begins with, None if there is none or it is outside ``span``."""
    match = _BEGINS_WITH_INTEGER.match(text)
    if match is None or len(match[1].lstrip("+-0")) > _MAX_DIGITS:
        return None
    number = int(match[1][:1].strip("+0123456789") + (match[1].lstrip("+-0") or "0"))
    return number if span[0] <= number <= span[1] else None


def read_fraction(text: str) -> float | None:
    """The decimal number that a text begins with, None if there is none or a float does not hold it."""
    match = _BEGINS_WITH_FRACTION.match(text)
    if match is None:
        return None
    number = float(match[1])
    is_written = "n" in match[1].lower()  # inf and nan are words, not numbers out of range
    return number if is_written or abs(number) <= _MAX_FLOAT else None


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
