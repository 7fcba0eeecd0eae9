"""The rotary tables that every rank file carries, computed as TensorRT-LLM's RopeEmbeddingUtils does, in float32.

``embed_positions`` is the sines then cosines of every position, of NVIDIA's default base whatever the model's is;
``embed_positions_for_gpt_attention`` holds cosine and sine in pairs, of the model's own frequencies, which are in
``rotary_inv_freq``. The recorded checkpoints of both versions are equal to these byte for byte.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from trt_spec.plan.facts import ModelFacts, RopeScaling

DEFAULT_BASE = 10000.0
POSITIONS_PER_BLOCK = 4096

Floats = npt.NDArray[np.float32]


def model_frequencies(facts: ModelFacts) -> Floats:
    """Frequencies of the model in radians per token, ``head_dim / 2`` values, scaling included."""
    scaling = facts.rope_scaling
    if scaling is None:
        return _frequencies(facts.head_dim, facts.rope_theta, 1.0)
    if scaling.rope_type == "linear":
        return _frequencies(facts.head_dim, facts.rope_theta, 1.0 / scaling.factor)
    plain = _frequencies(facts.head_dim, facts.rope_theta, 1.0)
    # In float64 and rounded once at the end, as NVIDIA's loop over numpy scalars.
    return np.array([_llama3(float(frequency), scaling) for frequency in plain], dtype=np.float32)


def render_table(name: str, facts: ModelFacts) -> Iterator[Floats]:
    """Blocks of the table ``name``, in order."""
    if name == "rotary_inv_freq":
        yield model_frequencies(facts)
        return
    sines_first = name == "embed_positions"
    frequencies = _frequencies(facts.head_dim, DEFAULT_BASE, 1.0) if sines_first else model_frequencies(facts)
    for first in range(0, facts.max_position_embeddings, POSITIONS_PER_BLOCK):
        last = min(first + POSITIONS_PER_BLOCK, facts.max_position_embeddings)
        angles = np.arange(first, last, dtype=np.float32)[:, None] * frequencies[None, :]
        if sines_first:
            yield np.concatenate((np.sin(angles), np.cos(angles)), axis=1)
        else:
            yield np.stack((np.cos(angles), np.sin(angles)), axis=-1)


def _frequencies(head_dim: int, base: float, scale: float) -> Floats:
    powers: npt.NDArray[Any] = (base ** (np.arange(0, head_dim, 2) / head_dim)).astype(np.float32)
    frequencies: Floats = np.float32(scale) / powers
    return frequencies


def _llama3(frequency: float, scaling: RopeScaling) -> float:
    context, low, high = scaling.original_max_position_embeddings, scaling.low_freq_factor, scaling.high_freq_factor
    wavelength = 2 * math.pi / frequency
    if wavelength < context / high:
        return frequency
    if wavelength > context / low:
        return frequency / scaling.factor
    smooth = (context / wavelength - low) / (high - low)
    return (1 - smooth) * frequency / scaling.factor + smooth * frequency
