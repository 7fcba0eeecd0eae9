"""Facts of a model, read from the configuration files of a Hugging Face checkpoint alone."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from trt_spec.errors import SpecError
from trt_spec.plan.features import check_features

FAMILIES = {"LlamaForCausalLM": "llama", "Qwen2ForCausalLM": "qwen2"}
ROPE_TYPES = ("default", "linear", "llama3")
MAX_SIZE = 1 << 24
"""Larger than any published model's; a damaged number is found before something is made that large."""


@dataclass(frozen=True)
class RopeScaling:
    """How rotary frequencies are stretched beyond the trained context; lengths in tokens."""

    rope_type: str
    factor: float
    low_freq_factor: float = 1.0
    high_freq_factor: float = 1.0
    original_max_position_embeddings: int = 0


@dataclass(frozen=True)
class ModelFacts:
    """Shapes and constants of a decoder-only model of the Llama or Qwen2 family.

    All sizes are numbers of elements. ``head_dim`` may differ from ``hidden_size / heads``.
    """

    architecture: str
    family: str
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    max_position_embeddings: int
    rms_norm_eps: float
    rope_theta: float
    rope_scaling: RopeScaling | None
    tied_embeddings: bool
    qkv_bias: bool
    output_bias: bool
    mlp_bias: bool
    dtype: str
    eos_ids: tuple[int, ...]

    @property
    def parameters(self) -> int:
        """Number of weights, biases and norms included; tied embeddings count once."""
        hidden, inner = self.hidden_size, self.intermediate_size
        q, kv = self.heads * self.head_dim, self.kv_heads * self.head_dim
        attention = hidden * (2 * q + 2 * kv) + self.qkv_bias * (q + 2 * kv) + self.output_bias * hidden
        mlp = 3 * hidden * inner + self.mlp_bias * (2 * inner + hidden)
        embeddings = self.vocab_size * hidden * (1 if self.tied_embeddings else 2)
        return embeddings + hidden + self.layers * (attention + mlp + 2 * hidden)


def resolve_facts(config: Mapping[str, Any], *, source: str) -> ModelFacts:
    """The facts in a parsed ``config.json``; ``source`` names the file in errors.

    Reads both spellings of rotary settings: ``rope_theta`` and ``rope_scaling`` of older files, ``rope_parameters``
    of transformers 5. Raises SpecError for a family or feature that engines built here would get wrong.
    """
    named = config.get("architectures")
    architecture = named[0] if isinstance(named, list) and named else "none"
    family = FAMILIES.get(architecture) if isinstance(architecture, str) else None
    if family is None:
        raise SpecError(
            f"{source}: architecture {architecture!r} is not supported.",
            remedy=f"Supported architectures: {', '.join(FAMILIES)}.",
        )
    check_features(config, source)
    hidden_size, heads = _positive(config, "hidden_size", source), _positive(config, "num_attention_heads", source)
    kv_heads = _positive(config, "num_key_value_heads", source, default=heads)
    if heads % kv_heads:
        raise SpecError(f"{source}: {heads} attention heads cannot share {kv_heads} key/value heads evenly.")
    head_dim = _positive(config, "head_dim", source, default=hidden_size // heads)
    if head_dim % 2:
        raise SpecError(
            f"{source}: head_dim is {head_dim}, but rotary embeddings turn pairs of elements, so it must be even.",
            remedy="Check head_dim, hidden_size and num_attention_heads.",
        )
    theta, scaling = _rope(config, source)
    attention_bias = _flag(config, "attention_bias", source)
    return ModelFacts(
        architecture=architecture,
        family=family,
        vocab_size=_positive(config, "vocab_size", source),
        hidden_size=hidden_size,
        intermediate_size=_positive(config, "intermediate_size", source),
        layers=_positive(config, "num_hidden_layers", source),
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        max_position_embeddings=_positive(config, "max_position_embeddings", source),
        rms_norm_eps=_number(config, "rms_norm_eps", source, default=1e-6),
        rope_theta=theta,
        rope_scaling=scaling,
        tied_embeddings=_flag(config, "tie_word_embeddings", source),
        # Qwen2 always has biases on q, k and v and never on o; Llama has all four or none.
        qkv_bias=family == "qwen2" or attention_bias,
        output_bias=family == "llama" and attention_bias,
        mlp_bias=family == "llama" and _flag(config, "mlp_bias", source),
        dtype=str(config.get("dtype") or config.get("torch_dtype") or "float32"),
        eos_ids=_eos_ids(config),
    )


def _flag(config: Mapping[str, Any], key: str, source: str) -> bool:
    value = config.get(key) or False
    if not isinstance(value, bool):
        raise SpecError(f"{source}: {key} is {value!r}, expected true or false.", remedy="Download the file again.")
    return value


def _number(config: Mapping[str, Any], key: str, source: str, *, default: float) -> float:
    value = default if config.get(key) is None else config[key]
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
        raise SpecError(f"{source}: {key} is {value!r}, expected a positive number.", remedy="Download the file again.")
    return float(value)


def _eos_ids(config: Mapping[str, Any]) -> tuple[int, ...]:
    eos = config.get("eos_token_id")
    return tuple(eos) if isinstance(eos, list) else () if eos is None else (eos,)


def _positive(config: Mapping[str, Any], key: str, source: str, *, default: int | None = None) -> int:
    value = config.get(key)
    if value is None:
        value = default
    if not isinstance(value, int) or isinstance(value, bool) or not 0 < value <= MAX_SIZE:
        raise SpecError(
            f"{source}: {key} is {value!r}, expected a positive integer of at most {MAX_SIZE}.",
            remedy="Download the checkpoint's config.json again.",
        )
    return value


def _rope(config: Mapping[str, Any], source: str) -> tuple[float, RopeScaling | None]:
    settings = config.get("rope_parameters") or config.get("rope_scaling") or {}
    if not isinstance(settings, Mapping):
        raise SpecError(
            f"{source}: the rope settings are {settings!r}, expected an object.", remedy="Download it again."
        )
    theta = _number({**config, **settings}, "rope_theta", source, default=10000.0)
    rope_type = settings.get("rope_type") or settings.get("type") or "default"
    if not isinstance(rope_type, str) or rope_type not in ROPE_TYPES:
        raise SpecError(
            f"{source}: rope type {rope_type!r} is not supported.",
            remedy=f"Supported rope types: {', '.join(ROPE_TYPES)}.",
        )
    if rope_type == "default":
        _check_unscaled(settings, source)
        return theta, None
    # A key that is missing reads as 0, which is no positive number: one message for both.
    factor = _number(settings, "factor", source, default=0.0)
    if rope_type == "linear":
        return theta, RopeScaling("linear", factor)
    low, high = (_number(settings, key, source, default=0.0) for key in ("low_freq_factor", "high_freq_factor"))
    context = _positive(settings, "original_max_position_embeddings", source)
    return theta, RopeScaling("llama3", factor, low, high, context)


def _check_unscaled(settings: Mapping[str, Any], source: str) -> None:
    """Rope settings without a type must not say more than the base: a stretch, or settings by kind of layer."""
    if settings.get("factor") not in (None, 1, 1.0) or any(isinstance(value, Mapping) for value in settings.values()):
        raise SpecError(
            f"{source}: the rope settings {dict(settings)!r} scale positions, but name no rope type for all layers.",
            remedy=f"Supported rope types: {', '.join(ROPE_TYPES)}.",
        )


def rotary_frequencies(facts: ModelFacts) -> list[float]:
    """Inverse frequencies of the rotary embedding, ``head_dim / 2`` values in radians per token.

    Su et al., arXiv 2104.09864; the llama3 stretch is the one published with Llama 3.1: long wavelengths are divided by
    ``factor``, short ones kept, those between interpolated.
    """
    half = facts.head_dim // 2
    plain = [facts.rope_theta ** (-2.0 * i / facts.head_dim) for i in range(half)]
    scaling = facts.rope_scaling
    if scaling is None:
        return plain
    if scaling.rope_type == "linear":
        return [f / scaling.factor for f in plain]
    return [_llama3_frequency(f, scaling) for f in plain]


def _llama3_frequency(frequency: float, scaling: RopeScaling) -> float:
    context = scaling.original_max_position_embeddings
    turns = context * frequency / (2.0 * math.pi)
    if turns < scaling.low_freq_factor:
        return frequency / scaling.factor
    if turns > scaling.high_freq_factor:
        return frequency
    smooth = (turns - scaling.low_freq_factor) / (scaling.high_freq_factor - scaling.low_freq_factor)
    return (1.0 - smooth) * frequency / scaling.factor + smooth * frequency
