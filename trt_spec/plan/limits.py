"""What each engine is built for, derived from the limits that users ask for.

Sources: TensorRT-LLM builder.py and llmRequest.cpp (lengths), microBatchScheduler.cpp (the scheduler counts every
resent prefix in full against max_num_tokens, whatever of it is cached), trtGptModelInflightBatching.cpp (what
draft-target needs).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from trt_spec.plan.activations import activation_bytes_per_token, max_tokens_by_volume
from trt_spec.plan.facts import ModelFacts
from trt_spec.plan.finding import Finding
from trt_spec.plan.hardware import Gpu, load_gpu
from trt_spec.plan.model_files import ModelFiles
from trt_spec.plan.precision import is_fp8_attention
from trt_spec.plan.toolchain import Profile
from trt_spec.plan.trtllm_argv import resolve_dtype
from trt_spec.spec.draft_source import EXTERNAL_DRAFT_MODES
from trt_spec.spec.model import Accept, Model, Role, Spec

ACTIVATION_SHARE = 0.1
"""Share of a GPU's memory that a derived max_num_tokens may spend on activations: the rest is better spent on KV cache.
A choice, not a measurement."""

VERIFYING_MODES = (*EXTERNAL_DRAFT_MODES, "medusa")
"""Modes whose target engine is built to verify several tokens a step."""

USUAL_MAX_NUM_TOKENS = 16384  # trtllm-build logs a warning above it


@dataclass(frozen=True)
class EngineLimits:
    """Build and run-time limits of one engine; lengths and budgets in tokens.

    ``max_seq_len`` is the flag of trtllm-build, ``engine_max_seq_len`` what the engine's config.json says afterwards:
    with a speculation mode the builder adds max_draft_len once more. ``usable_seq_len`` is prompt plus answer that a
    request may have. ``effective_input_len`` is the longest input that the runtime admits, ``effective_verify_batch``
    how many sequences of the full length fit into one step.
    """

    role: Role
    max_batch_size: int
    max_input_len: int
    max_seq_len: int
    engine_max_seq_len: int
    usable_seq_len: int
    max_num_tokens: int
    max_draft_len: int
    tokens_per_block: int
    fp8_context_fmha: bool
    gather_generation_logits: bool
    effective_input_len: int
    effective_verify_batch: int
    max_beam_width: int = 1
    kv_cache_reuse: bool = True
    paged_context_fmha: bool = True
    enable_chunked_context: bool = False


def granted_output_tokens(max_seq_len: int, prompt_tokens: int, max_draft_len: int) -> int:
    """Tokens that an engine grants a request: max_seq_len - prompt - max_draft_len (llmRequest.cpp), at least 0."""
    return max(0, max_seq_len - prompt_tokens - max_draft_len)


def effective_input_len(max_seq_len: int, max_num_tokens: int) -> int:
    """Longest input of a request with packed input, context FMHA and no chunked context."""
    return min(max_seq_len - 1, max_num_tokens)


def tokens_per_sequence(spec: Spec, max_draft_len: int) -> int:
    """Tokens that the scheduler counts for one sequence at its full length: prompt + answer + draft + 1."""
    return spec.limits.max_input_len + spec.limits.max_output_len + max_draft_len + 1


def resolve_limits(
    spec: Spec, role: Role, facts: ModelFacts, profile: Profile, files: ModelFiles | None = None
) -> tuple[EngineLimits, tuple[Finding, ...]]:
    """The limits of one engine, and what is wrong with or worth knowing of them. Pure.

    ``files`` tell whether the checkpoint has scales for an FP8 KV cache. Raises SpecError for a spec without hardware.
    """
    gpu = load_gpu(spec.hardware.gpu if spec.hardware else "none")
    model = spec.models()[role]
    verifies = role == "target" and spec.speculation.mode in VERIFYING_MODES
    max_draft_len = spec.speculation.max_draft_len if verifies else 0
    asked = spec.limits.max_input_len + spec.limits.max_output_len
    max_seq_len = min(asked + max_draft_len, context_window(facts))
    max_num_tokens = _derive_max_num_tokens(spec, model, facts, gpu, max_draft_len)
    limits = EngineLimits(
        role=role,
        max_batch_size=spec.limits.max_batch_size,
        max_input_len=spec.limits.max_input_len,
        max_seq_len=max_seq_len,
        engine_max_seq_len=max_seq_len + max_draft_len,
        usable_seq_len=max_seq_len - max_draft_len,
        max_num_tokens=max_num_tokens,
        max_draft_len=max_draft_len,
        tokens_per_block=profile.tokens_per_block,
        fp8_context_fmha=is_fp8_attention(model, gpu, files),
        gather_generation_logits=gathers_logits(spec),
        effective_input_len=effective_input_len(max_seq_len, max_num_tokens),
        effective_verify_batch=_sequences_per_step(spec, max_num_tokens, max_draft_len),
    )
    return limits, judge_limits(limits, spec, facts)


def judge_limits(limits: EngineLimits, spec: Spec, facts: ModelFacts) -> tuple[Finding, ...]:
    """``check_limits`` of a planned engine, and what its token budget means for building it."""
    return (
        *check_limits(limits, spec),
        *_check_volume(limits, facts, spec.models()[limits.role]),
        *_note_large_budget(limits),
    )


def with_sequences_per_step(limits: EngineLimits, spec: Spec, sequences: int) -> EngineLimits:
    """The same engine with at most as large a max_num_tokens as ``sequences`` of full length need."""
    budget = min(limits.max_num_tokens, sequences * tokens_per_sequence(spec, limits.max_draft_len))
    return replace(
        limits,
        max_num_tokens=budget,
        effective_input_len=effective_input_len(limits.max_seq_len, budget),
        effective_verify_batch=_sequences_per_step(spec, budget, limits.max_draft_len),
    )


def context_window(facts: ModelFacts) -> int:
    """Positions that the model's rotary embedding covers; linear scaling stretches them, as trtllm-build counts."""
    scaling = facts.rope_scaling
    factor = scaling.factor if scaling is not None and scaling.rope_type == "linear" else 1.0
    return math.ceil(facts.max_position_embeddings * factor)


def gathers_logits(spec: Spec) -> bool:
    """Whether both engines must keep the logits of generated tokens: for acceptance by logits, fast or not."""
    return spec.speculation.mode == "draft_target" and spec.speculation.accept in ("logits", "fast_logits")


def _derive_max_num_tokens(spec: Spec, model: Model, facts: ModelFacts, gpu: Gpu, max_draft_len: int) -> int:
    """Enough for every sequence at its full length, capped by activation memory and tensor volume, at least one."""
    one = tokens_per_sequence(spec, max_draft_len)
    per_token = activation_bytes_per_token(
        facts, model.quantization, resolve_dtype(model, facts), model.tensor_parallel
    )
    affordable = int(gpu.memory_bytes * ACTIVATION_SHARE) // per_token
    cap = min(affordable, max_tokens_by_volume(facts, model.tensor_parallel))
    return max(one, min(spec.limits.max_batch_size * one, cap))


def _sequences_per_step(spec: Spec, max_num_tokens: int, max_draft_len: int) -> int:
    return min(spec.limits.max_batch_size, max_num_tokens // tokens_per_sequence(spec, max_draft_len))


def check_limits(limits: EngineLimits, spec: Spec) -> tuple[Finding, ...]:
    """Whether an engine with these limits, planned or built, can do what the spec asks for."""
    return (
        *_check_lengths(limits, spec),
        *_check_budget(limits, spec),
        *_check_speculation(limits, spec),
        *_check_logits(limits, spec.speculation.accept, spec),
    )


def _check_lengths(limits: EngineLimits, spec: Spec) -> Iterator[Finding]:
    asked = spec.limits.max_input_len + spec.limits.max_output_len
    if limits.usable_seq_len <= spec.limits.max_input_len:
        yield Finding(
            "limit-seq-len",
            "refuse",
            f"{limits.role}: of max_seq_len {limits.max_seq_len} tokens {limits.usable_seq_len} are usable (less "
            f"max_draft_len {limits.max_draft_len}), a prompt of {spec.limits.max_input_len} leaves no answer.",
            f"Lower limits.max_input_len below {limits.usable_seq_len}.",
            limits.role,
        )
    elif limits.usable_seq_len < asked:
        yield Finding(
            "limit-seq-len",
            "warn",
            f"{limits.role}: the context window clamps max_seq_len to {limits.max_seq_len}; less max_draft_len "
            f"{limits.max_draft_len}, {limits.usable_seq_len} tokens of prompt and answer are usable of {asked} asked.",
            f"Lower limits.max_input_len + limits.max_output_len to {limits.usable_seq_len}, or the draft length.",
            limits.role,
        )


def _check_budget(limits: EngineLimits, spec: Spec) -> Iterator[Finding]:
    one = tokens_per_sequence(spec, limits.max_draft_len)
    needed = spec.limits.max_batch_size * one
    longest = min(limits.usable_seq_len, spec.limits.max_input_len + spec.limits.max_output_len) - 1
    resent = longest if spec.external_draft_len else spec.limits.max_input_len
    admitted = effective_input_len(limits.max_seq_len, limits.max_num_tokens)
    if spec.limits.max_input_len > admitted or resent + limits.max_draft_len > limits.max_num_tokens:
        yield Finding(
            "limit-input-len",
            "refuse",
            f"{limits.role}: inputs up to {admitted} tokens are admitted (max_seq_len {limits.max_seq_len} - 1, "
            f"max_num_tokens {limits.max_num_tokens}), expected {spec.limits.max_input_len} for a prompt and "
            f"{resent + limits.max_draft_len} for a resent prefix with its draft.",
            f"Raise max_num_tokens to {one}, or lower the limits.",
            limits.role,
        )
    if spec.external_draft_len and limits.max_num_tokens < needed:
        fit = limits.max_num_tokens // one
        yield Finding(
            "limit-verify-batch",
            "warn",
            f"{limits.role}: max_num_tokens {limits.max_num_tokens} takes {fit} of {spec.limits.max_batch_size} "
            f"sequences at full length, {needed} would be for all; the scheduler counts each resent prefix in full, so "
            "speculation will serialise there.",
            "Lower limits.max_batch_size or the lengths, or accept it: shorter sequences batch better.",
            limits.role,
        )


def _check_speculation(limits: EngineLimits, spec: Spec) -> Iterator[Finding]:
    if not spec.external_draft_len:
        return
    if limits.max_beam_width != 1:
        yield Finding(
            "limit-beam-width",
            "refuse",
            f"{limits.role}: max_beam_width is {limits.max_beam_width}, speculative decoding expects 1.",
            "Build with max_beam_width 1.",
            limits.role,
        )
    if not (limits.kv_cache_reuse and limits.paged_context_fmha):
        yield Finding(
            "limit-kv-reuse",
            "refuse",
            f"{limits.role}: KV cache block reuse or paged context FMHA is off, drafts from outside need both: every "
            "round resends the whole prefix.",
            "Build with use_paged_context_fmha, and switch enable_kv_cache_reuse on.",
            limits.role,
        )
    if limits.role == "target" and limits.enable_chunked_context:
        yield Finding(
            "limit-chunked-context",
            "refuse",
            "target: chunked context is on, expected off: drafts that do not fit a chunk are dropped without a word.",
            "Switch enable_chunked_context off.",
            limits.role,
        )


def _check_logits(limits: EngineLimits, accept: Accept, spec: Spec) -> Iterator[Finding]:
    if gathers_logits(spec) and not limits.gather_generation_logits:
        yield Finding(
            "limit-logits",
            "refuse",
            f"{limits.role}: accept {accept} needs the engine's logits, it is built without gather_generation_logits.",
            "Build with gather_generation_logits, or set speculation.accept to tokens.",
            limits.role,
        )


def _check_volume(limits: EngineLimits, facts: ModelFacts, model: Model) -> Iterator[Finding]:
    most = max_tokens_by_volume(facts, model.tensor_parallel)
    if limits.max_num_tokens > most:
        yield Finding(
            "limit-tensor-volume",
            "warn",
            f"{limits.role}: max_num_tokens {limits.max_num_tokens} for one sequence passes TensorRT's tensor volume, "
            f"{most} tokens (2^31 - 1 elements of gate and up together).",
            "Lower the lengths, or raise tensor_parallel.",
            limits.role,
        )


def _note_large_budget(limits: EngineLimits) -> Iterator[Finding]:
    if limits.max_num_tokens > USUAL_MAX_NUM_TOKENS:
        yield Finding(
            "limit-large-num-tokens",
            "note",
            f"{limits.role}: trtllm-build will warn that max_num_tokens {limits.max_num_tokens} is over "
            f"{USUAL_MAX_NUM_TOKENS}; speculation needs it, because resent prefixes count in full.",
            role=limits.role,
        )
