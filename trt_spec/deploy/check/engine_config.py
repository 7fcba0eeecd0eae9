"""Values of an engine's config.json and other JSON of strangers: a wrong type reads as None."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def section(config: Mapping[str, Any] | None, *names: str) -> Mapping[str, Any]:
    """A nested section of a JSON document, empty where there is none."""
    found: Any = config
    for name in names:
        found = found.get(name) if isinstance(found, Mapping) else None
    return found if isinstance(found, Mapping) else {}


def whole(values: Mapping[str, Any], key: str) -> int | None:
    """A whole number of a JSON section, None if there is none of that name."""
    value = values.get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def is_tensorrt(config: Mapping[str, Any] | None) -> bool:
    """Whether a config.json is that of a TensorRT engine, and not of trtspec's own ONNX engines."""
    return config is not None and not str(config.get("version", "")).startswith("onnx")


def rank_count(pretrained: Mapping[str, Any]) -> int | None:
    """Processes that run an engine: tensor, pipeline and context parallelism multiplied; None where it does not say."""
    mapping = section(pretrained, "mapping")
    sizes = [whole(mapping, key) for key in ("tp_size", "pp_size")]
    if None in sizes or min(size or 0 for size in sizes) < 1:
        return None
    tensor, pipeline = (size or 1 for size in sizes)
    return tensor * pipeline * max(1, whole(mapping, "cp_size") or 1)
