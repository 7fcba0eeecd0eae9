"""What is known of a model without its weights."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class TensorInfo:
    """What a safetensors header says of a tensor; dtype in safetensors' spelling: BF16, F16, F32, F8_E4M3, ..."""

    dtype: str
    shape: tuple[int, ...]


LAYER_PREFIX = "model.layers."
"""What the names of a layer's tensors begin with in Hugging Face checkpoints, in front of its number."""


def split_layer(name: str) -> tuple[int, str] | None:
    """(layer, rest) of a tensor's name, such as (3, "mlp.up_proj.weight"); None if it belongs to no layer."""
    layer, _, rest = name.removeprefix(LAYER_PREFIX).partition(".")
    return (int(layer), rest) if name.startswith(LAYER_PREFIX) and layer.isdecimal() else None


@dataclass(frozen=True)
class ModelFiles:
    """The small files of a checkpoint, parsed; empty where a file is missing.

    ``reference`` is the model as the spec names it, ``origin`` where the files come from ("local folder /m/x",
    "hub owner/name at 1a2b3c", "built in"). ``tokenizer`` is tokenizer.json, ``quantization`` hf_quant_config.json,
    ``tensors`` the headers of all shards or None where they were not read. A built-in model names its tokenizer's
    family in ``tokenizer_family`` instead of carrying the file.
    """

    reference: str
    origin: str
    config: Mapping[str, Any]
    generation_config: Mapping[str, Any] = field(default_factory=dict)
    tokenizer: Mapping[str, Any] = field(default_factory=dict)
    tokenizer_config: Mapping[str, Any] = field(default_factory=dict)
    quantization: Mapping[str, Any] = field(default_factory=dict)
    tensors: Mapping[str, TensorInfo] | None = None
    tokenizer_family: str | None = None
