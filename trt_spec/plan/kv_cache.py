"""How much a KV cache takes and holds: bytes per token, whole blocks per sequence, and pools given as fractions.

TensorRT-LLM allocates the cache in blocks of ``tokens_per_block`` tokens and refuses to start if the pool cannot hold
one sequence of max_seq_len (kvCacheManager.cpp). A pool given as a fraction is a share of what is free at the moment
that engine loads, so two engines on one GPU depend on their order: plans give ``max_tokens_in_paged_kv_cache`` instead.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

from trt_spec.plan.facts import ModelFacts
from trt_spec.plan.finding import Finding
from trt_spec.plan.hardware import GIB
from trt_spec.plan.shapes import kv_heads_per_rank
from trt_spec.spec.model import KvCacheDtype, Role

KV_SHARE = 0.95
"""Share of the memory left beside weights and buffers that planned KV pools may take; the rest covers fragmentation."""

DTYPE_BYTES = {"float32": 4, "float16": 2, "bfloat16": 2}


def kv_bytes_per_token(
    facts: ModelFacts, dtype: str, kv_cache_dtype: KvCacheDtype, tensor_parallel: int, layers: int
) -> int:
    """Bytes of one cached token on a rank that has ``layers`` layers: 2 * layers * kv_heads * head_dim * element.

    The element is 1 byte for an FP8 cache, else as wide as ``dtype``. A rank keeps at least one KV head.
    """
    element = 1 if kv_cache_dtype == "fp8" else DTYPE_BYTES[dtype]
    return 2 * layers * kv_heads_per_rank(facts, tensor_parallel) * facts.head_dim * element


def sequence_tokens(max_seq_len: int, tokens_per_block: int, beam_width: int = 1) -> int:
    """Tokens of cache that one sequence may need: beams * max_seq_len in whole blocks."""
    return beam_width * math.ceil(max_seq_len / tokens_per_block) * tokens_per_block


def pool_tokens(free_bytes: float, fraction: float, bytes_per_token: int) -> int:
    """Tokens that a pool of ``fraction`` of ``free_bytes`` holds: floor(free * fraction / bytes per token)."""
    return int(free_bytes * fraction / bytes_per_token)


def check_pool(
    free_bytes: float, fraction: float, bytes_per_token: int, needed_tokens: int, role: Role
) -> tuple[Finding, ...]:
    """Whether a pool given as a fraction of free memory holds one sequence, and which fraction would."""
    tokens = pool_tokens(free_bytes, fraction, bytes_per_token)
    if tokens >= needed_tokens:
        return ()
    enough = math.ceil(100 * needed_tokens * bytes_per_token / free_bytes) / 100
    remedy = (
        f"Set the fraction to {enough:.2f} or more, or lower the lengths."
        if enough <= KV_SHARE
        else "Lower the lengths or free memory: no fraction is enough."
    )
    return (
        Finding(
            "kv-pool-too-small",
            "refuse",
            f"{role}: {fraction:g} of {free_bytes / 1e9:.2f} GB free is a KV cache of {tokens} tokens at "
            f"{bytes_per_token} bytes, expected at least {needed_tokens} for one sequence.",
            remedy,
            role,
        ),
    )


@dataclass(frozen=True)
class SharedEngine:
    """One of the engines on a shared GPU: bytes beside its KV cache, bytes of one sequence, its pool's fraction."""

    role: Role
    fixed_bytes: int
    sequence_bytes: int
    fraction: float | None


def check_fractions(gpu_bytes: int, engines: Sequence[SharedEngine]) -> tuple[Finding, ...]:
    """Whether engines whose pools are fractions of the memory free at load fit on one GPU, in whatever order they load.

    Each engine takes its fixed bytes first, then ``fraction`` of what is left (TensorRT-LLM memory reference); one
    without a fraction takes the default of 0.9 and is warned about.
    """
    findings = [
        Finding(
            "kv-fraction-unset",
            "warn",
            f"{engine.role}: no KV cache size on a shared GPU, so it takes {DEFAULT_FRACTION:g} of what is free.",
            _EXPLICIT,
            engine.role,
        )
        for engine in engines
        if engine.fraction is None
    ]
    for order in itertools.permutations(engines):
        fault = _load_in(order, gpu_bytes)
        if fault:
            return (*findings, fault)
    return tuple(findings)


DEFAULT_FRACTION = 0.9  # TensorRT-LLM, KvCacheConfig
_EXPLICIT = "Give max_tokens_in_paged_kv_cache for both engines: it does not depend on the order of loading."


def _load_in(order: Sequence[SharedEngine], gpu_bytes: int) -> Finding | None:
    free = float(gpu_bytes)
    names = " then ".join(engine.role for engine in order)
    for engine in order:
        if engine.fixed_bytes > free:
            needed, what = engine.fixed_bytes, "weights and buffers need"
        else:
            free -= engine.fixed_bytes
            pool = free * (DEFAULT_FRACTION if engine.fraction is None else engine.fraction)
            if pool >= engine.sequence_bytes:
                free -= pool
                continue
            needed, free, what = engine.sequence_bytes, pool, "KV cache of one sequence needs"
        return Finding(
            "kv-fractions-collide",
            "refuse",
            f"{engine.role}: its {what} {needed / GIB:.1f} GiB, {max(0.0, free) / GIB:.1f} GiB are left if the "
            f"engines load as {names}.",
            _EXPLICIT,
            engine.role,
        )
    return None
