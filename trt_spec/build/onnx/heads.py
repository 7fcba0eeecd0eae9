"""Attention heads of a width that GroupQueryAttention takes: others are widened by zeros, which changes no product."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def widen_heads(values: NDArray[np.float32], head_dim: int, width: int) -> NDArray[np.float32]:
    """``values`` [heads * head_dim, ...] as [heads * width, ...].

    Zeros follow each half of a head: the rotary embedding pairs entry i of the first half with entry i of the second.
    """
    if width == head_dim:
        return values
    rest = values.shape[1:]
    halves = values.reshape(-1, 2, head_dim // 2, *rest)
    widened = np.zeros((len(halves), 2, width // 2, *rest), np.float32)
    widened[:, :, : head_dim // 2] = halves
    return widened.reshape(-1, *rest)
