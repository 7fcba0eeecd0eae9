"""GPU memory of a placed pair: what each engine's rank takes on each GPU, and the KV pools that fit beside it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from trt_spec.plan.activations import RUNTIME_RESERVE_BYTES, activation_bytes, decoder_bytes, logits_bytes
from trt_spec.plan.facts import ModelFacts
from trt_spec.plan.hardware import Gpu
from trt_spec.plan.kv_cache import KV_SHARE, kv_bytes_per_token, sequence_tokens
from trt_spec.plan.limits import EngineLimits, gathers_logits
from trt_spec.plan.medusa_heads import MedusaHeads
from trt_spec.plan.placement import plan_placement
from trt_spec.plan.shapes import layers_per_rank, padded_vocab_size
from trt_spec.plan.tensors import Split, rank_weight_bytes, rotary_tables
from trt_spec.plan.toolchain.profile import CheckpointDialect
from trt_spec.plan.trtllm_argv import resolve_dtype
from trt_spec.spec.model import Role, Spec


@dataclass(frozen=True)
class Sizing:
    """All that decides the memory of a pair; ``medusa`` are the heads of the target, if it has any."""

    spec: Spec
    facts: Mapping[Role, ModelFacts]
    limits: Mapping[Role, EngineLimits]
    gpu: Gpu
    dialect: CheckpointDialect
    medusa: MedusaHeads | None = None

    def heads_of(self, role: Role) -> MedusaHeads | None:
        """The Medusa heads in the engine of ``role``."""
        return self.medusa if role == "target" else None


@dataclass(frozen=True)
class EngineMemory:
    """Bytes that one rank of one engine takes on its GPU; ``kv_bytes`` is its pool, the rest is there before it.

    ``logits_bytes`` are those of one step, ``kept_logits_bytes`` the draft's that acceptance by logits keeps.
    """

    role: Role
    rank: int
    weights_bytes: int
    activation_bytes: int
    logits_bytes: int
    kept_logits_bytes: int
    decoder_bytes: int
    reserve_bytes: int
    kv_bytes_per_token: int
    kv_bytes: int = 0

    @property
    def fixed_bytes(self) -> int:
        """Everything but the KV cache."""
        buffers = self.logits_bytes + self.kept_logits_bytes + self.decoder_bytes + self.reserve_bytes
        return self.weights_bytes + self.activation_bytes + buffers


@dataclass(frozen=True)
class GpuMemory:
    """One GPU of the placement, with a rank of one engine or of both."""

    index: int
    total_bytes: int
    engines: tuple[EngineMemory, ...]

    @property
    def fixed_bytes(self) -> int:
        """Bytes of all engines without their KV caches."""
        return sum(engine.fixed_bytes for engine in self.engines)

    @property
    def kv_budget_bytes(self) -> int:
        """Bytes that the KV pools together may take: 0.95 of what is left, negative if weights do not fit."""
        return math.floor((self.total_bytes - self.fixed_bytes) * KV_SHARE)

    @property
    def unused_bytes(self) -> int:
        """Bytes that neither engines nor pools take."""
        return self.total_bytes - self.fixed_bytes - sum(engine.kv_bytes for engine in self.engines)


@dataclass(frozen=True)
class KvPool:
    """The KV cache of one engine, in tokens; it is as large as its tightest rank allows.

    ``sequence_tokens`` is one sequence of full length in whole blocks, ``leftover_tokens`` what a full batch of them
    leaves (negative: so many are missing).
    """

    role: Role
    max_tokens: int
    sequence_tokens: int
    full_sequences: int
    leftover_tokens: int


@dataclass(frozen=True)
class Measured:
    """GPUs and pools of one sizing."""

    gpus: tuple[GpuMemory, ...]
    pools: tuple[KvPool, ...]

    @property
    def fits(self) -> bool:
        """Whether every pool holds at least one sequence of full length, without which an engine does not start."""
        return all(pool.max_tokens >= pool.sequence_tokens for pool in self.pools)


def measure_memory(sizing: Sizing) -> Measured:
    """Bytes on each GPU that the placement uses, and the KV pools: explicit token counts for both engines.

    Engines that share a GPU get equally many tokens, because every sequence in flight lives in both caches.
    """
    empty = _place_engines(sizing)
    tokens = _pool_tokens(sizing, empty)
    gpus = tuple(
        replace(
            gpu,
            engines=tuple(replace(e, kv_bytes=tokens[e.role] * e.kv_bytes_per_token) for e in gpu.engines),
        )
        for gpu in empty
    )
    return Measured(gpus, tuple(_pool(sizing.limits[role], tokens[role]) for role in tokens))


def _place_engines(sizing: Sizing) -> tuple[GpuMemory, ...]:
    placement, _ = plan_placement(sizing.spec)
    engines: dict[int, list[EngineMemory]] = {}
    for role, placed in placement.roles.items():
        ranks = _engine_ranks(sizing, role, len(placed.gpus))
        for gpu, engine in zip(placed.gpus, ranks, strict=True):
            engines.setdefault(gpu, []).append(engine)
    return tuple(GpuMemory(gpu, sizing.gpu.memory_bytes, tuple(engines[gpu])) for gpu in sorted(engines))


def _engine_ranks(sizing: Sizing, role: Role, ranks: int) -> tuple[EngineMemory, ...]:
    model, facts, limits = sizing.spec.models()[role], sizing.facts[role], sizing.limits[role]
    pp, dtype = model.pipeline_parallel, resolve_dtype(model, facts)
    tp = ranks // pp
    vocab = padded_vocab_size(facts.vocab_size, tp)
    heads = sizing.heads_of(role)
    split = Split(facts, model.quantization, model.kv_cache_dtype, dtype, tp, pp, sizing.dialect, medusa=heads)
    weights = rank_weight_bytes(facts, model.quantization, dtype, tp, pp, sizing.dialect, model.kv_cache_dtype, heads)
    # What the checkpoint lacks the builder makes.
    tables = 0 if split.has_rotary_tables else sum(row.total_bytes for row in rotary_tables(facts))
    # Each head gives logits for every position that the target does (models/medusa/model.py, medusa_logits).
    outputs = 1 + (heads.count if heads else 0)
    rows = limits.max_batch_size * (limits.max_draft_len + 1) * outputs
    layers = layers_per_rank(facts.layers, pp)
    return tuple(
        EngineMemory(
            role=role,
            rank=rank,
            weights_bytes=weights[rank] + tables,
            activation_bytes=activation_bytes(facts, model.quantization, dtype, tp, limits.max_num_tokens, rows, vocab),
            logits_bytes=logits_bytes(limits.max_batch_size, limits.max_draft_len, vocab) * outputs,
            kept_logits_bytes=_kept_logits(sizing.spec, vocab),
            decoder_bytes=decoder_bytes(limits.max_batch_size, vocab),
            reserve_bytes=RUNTIME_RESERVE_BYTES,
            kv_bytes_per_token=kv_bytes_per_token(facts, dtype, model.kv_cache_dtype, tp, layers[rank // tp]),
        )
        for rank in range(ranks)
    )


def _kept_logits(spec: Spec, padded_vocab: int) -> int:
    """Acceptance by logits keeps max_draft_len rows of the draft's for each sequence, in both engines."""
    if not gathers_logits(spec):
        return 0
    return logits_bytes(spec.limits.max_batch_size, spec.speculation.max_draft_len - 1, padded_vocab)


def _pool_tokens(sizing: Sizing, gpus: tuple[GpuMemory, ...]) -> dict[Role, int]:
    """Tokens of each pool in whole blocks: the least that any GPU of the role allows."""
    roles = tuple(sizing.spec.models())
    shared = any(len({engine.role for engine in gpu.engines}) > 1 for gpu in gpus)
    groups: tuple[tuple[Role, ...], ...] = (roles,) if shared else tuple((role,) for role in roles)
    tokens: dict[Role, int] = {}
    for group in groups:
        least = min(
            gpu.kv_budget_bytes // sum(engine.kv_bytes_per_token for engine in gpu.engines)
            for gpu in gpus
            if any(engine.role in group for engine in gpu.engines)
        )
        for role in group:
            block = sizing.limits[role].tokens_per_block
            tokens[role] = max(0, least // block * block)
    return tokens


def _pool(limits: EngineLimits, max_tokens: int) -> KvPool:
    sequence = sequence_tokens(limits.engine_max_seq_len, limits.tokens_per_block, limits.max_beam_width)
    return KvPool(
        role=limits.role,
        max_tokens=max_tokens,
        sequence_tokens=sequence,
        full_sequences=max_tokens // sequence,
        leftover_tokens=max_tokens - limits.max_batch_size * sequence,
    )
