"""The inputs of a request to an engine model, checked, as what the engine runs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..stopping import StopWords, unpack_stop_words
from ..triton_request import BadRequest, TensorReader
from .check_request import check_request
from .engine import Engine
from .sequence import GenerateRequest

READ = frozenset(
    {
        "input_ids",
        "input_lengths",
        "request_output_len",
        "num_return_sequences",
        "draft_input_ids",
        "draft_logits",
        "draft_acceptance_threshold",
        "end_id",
        "stop_words_list",
        "bad_words_list",
        "temperature",
        "runtime_top_k",
        "runtime_top_p",
        "runtime_top_p_min",
        "runtime_top_p_decay",
        "seed",
        "random_seed",
        "min_tokens",
        "min_length",
        "repetition_penalty",
        "presence_penalty",
        "frequency_penalty",
        "embedding_bias",
        "exclude_input_in_output",
        "streaming",
        "stop",
        "return_log_probs",
        "return_context_logits",
        "return_generation_logits",
        "return_perf_metrics",
        "return_kv_cache_reuse_stats",
        "return_num_input_tokens",
        "return_num_output_tokens",
    }
)
"""The inputs that this engine honours."""

MAX_WORD_IDS = 1 << 14
MAX_SEQUENCES = 256
_SEEDS = 1 << 64


@dataclass(frozen=True)
class EngineOptions:
    """What the model's configuration says of every request."""

    decoupled: bool = False
    excludes_input: bool = False
    normalizes_log_probs: bool = True

    @classmethod
    def from_parameters(cls, parameters: Mapping[str, str], *, decoupled: bool) -> EngineOptions:
        """Unset ones mean what they mean to the C++ backend (model_instance_state.cc)."""
        return cls(
            decoupled=decoupled,
            excludes_input=parameters.get("exclude_input_in_output", "").lower() == "true",
            normalizes_log_probs=parameters.get("normalize_log_probs", "").lower() != "false",
        )


@dataclass(frozen=True)
class EngineRequest:
    """``sequences`` differ in their seeds alone; the rest says which outputs the client wants beside the tokens."""

    sequences: tuple[GenerateRequest, ...]
    excludes_input: bool = False
    wants_perf_metrics: bool = False
    wants_reuse_stats: bool = False
    wants_input_tokens: bool = False
    wants_output_tokens: bool = False


def read_engine_request(tensors: TensorReader, engine: Engine, options: EngineOptions) -> EngineRequest:
    """The checked request; raises BadRequest."""
    tensors.check_supported(READ)
    streams = tensors.flag("streaming")
    if streams and not options.decoupled:
        raise BadRequest("streaming is not possible on this model, which is not decoupled; stream from ensemble.")
    request = _read_sequence(tensors, engine, options, streams=streams)
    check_request(engine, request)
    if request.draft_logits is not None:
        _check_logits(request.draft_logits, "draft_logits")
    excludes = tensors.scalar("exclude_input_in_output")
    return EngineRequest(
        sequences=_repeat(request, int(tensors.scalar("num_return_sequences") or 1), options),
        # A stream tells of new tokens alone.
        excludes_input=streams or (options.excludes_input if excludes is None else bool(excludes)),
        wants_perf_metrics=tensors.flag("return_perf_metrics"),
        wants_reuse_stats=tensors.flag("return_kv_cache_reuse_stats"),
        wants_input_tokens=tensors.flag("return_num_input_tokens"),
        wants_output_tokens=tensors.flag("return_num_output_tokens"),
    )


def _read_sequence(tensors: TensorReader, engine: Engine, options: EngineOptions, *, streams: bool) -> GenerateRequest:
    input_ids = tensors.ids("input_ids")
    length = tensors.scalar("input_lengths")
    if length is None or not 0 <= length <= len(input_ids):
        raise BadRequest(f"input_lengths is {length}, but input_ids has {len(input_ids)} tokens.")
    vocab_size = engine.limits.vocab_size
    end_id = tensors.scalar("end_id")
    draft_ids, draft_logits = tensors.ids("draft_input_ids"), tensors.array("draft_logits")
    if not draft_ids and draft_logits is not None and not draft_logits.size:
        draft_logits = None  # no rows for no drafts: nothing to accept by
    threshold = tensors.scalar("draft_acceptance_threshold")
    if threshold is not None and not math.isfinite(threshold):
        raise BadRequest(f"draft_acceptance_threshold is {threshold}, expected a number.")
    sampling = tensors.sampling(
        top_k="runtime_top_k",
        top_p="runtime_top_p",
        bad_words=_word_ids(tensors, "bad_words_list"),
        embedding_bias=_bias(tensors, vocab_size),
    )
    if sampling.rules.min_tokens and end_id is not None and end_id >= vocab_size:
        raise BadRequest(f"end_id is {end_id}, which min_tokens cannot keep away: the vocabulary has {vocab_size} ids.")
    if draft_ids and sampling.changes_top_p:
        # externalDraftTokensLayer.cpp samples with the top-p of the request alone.
        raise BadRequest("runtime_top_p_decay and runtime_top_p_min are not supported with draft_input_ids.")
    return GenerateRequest(
        input_ids=input_ids[:length],
        max_new_tokens=int(tensors.scalar("request_output_len") or 0),
        draft_ids=draft_ids,
        end_id=None if end_id is None or end_id < 0 else end_id,
        stop_words=_word_ids(tensors, "stop_words_list"),
        sampling=sampling,
        return_logits=tensors.flag("return_generation_logits"),
        draft_logits=draft_logits,
        acceptance_threshold=threshold,
        return_log_probs=tensors.flag("return_log_probs") and not engine.limits.verifies_drafts,
        normalize_log_probs=options.normalizes_log_probs,
        return_context_logits=tensors.flag("return_context_logits"),
        streams=streams,
    )


def _repeat(request: GenerateRequest, count: int, options: EngineOptions) -> tuple[GenerateRequest, ...]:
    """The sequences of one request: the seed of each is that of the request plus its index, as in llmRequest.cpp.

    The C++ backend sends a response for each (model_instance_state.cc), which only a decoupled model can.
    """
    if count > 1 and not options.decoupled:
        raise BadRequest(
            f"num_return_sequences {count} is not possible on this model, which is not decoupled: every sequence is a "
            "response of its own. Send a request for each, with seeds of their own."
        )
    if not 1 <= count <= MAX_SEQUENCES:
        raise BadRequest(f"num_return_sequences is {count}, expected 1 to {MAX_SEQUENCES}.")
    seed = request.sampling.seed
    seeds = [(seed + index) % _SEEDS for index in range(count)]
    return tuple(replace(request, sampling=replace(request.sampling, seed=own)) for own in seeds)


def _word_ids(tensors: TensorReader, name: str) -> StopWords:
    """A packed list of words as token ids."""
    packed = tensors.array(name)
    if packed is None or not packed.size:
        return ()
    if packed.size > MAX_WORD_IDS:
        raise BadRequest(f"{name} has {packed.size} values, expected at most {MAX_WORD_IDS}.")
    try:
        words = unpack_stop_words(packed)
    except ValueError as error:
        raise BadRequest(f"{name}: {error}.") from None
    lowest = min((token for word in words for token in word), default=0)
    if lowest < 0:
        raise BadRequest(f"{name} has the token id {lowest}, expected 0 or more.")
    return words


def _bias(tensors: TensorReader, vocab_size: int) -> NDArray[np.float32] | None:
    bias = tensors.array("embedding_bias")
    if bias is None or not bias.size:
        return None
    if bias.size != vocab_size:
        raise BadRequest(f"embedding_bias has {bias.size} values, expected the vocabulary of {vocab_size}.")
    _check_logits(bias.reshape(1, -1), "embedding_bias")
    return bias.reshape(-1)


def _check_logits(rows: NDArray[np.floating[Any]], name: str) -> None:
    """A row may rule tokens out with minus infinity, but not all; its largest value tells of NaN too."""
    if not np.isfinite(rows.max(axis=1)).all():
        raise BadRequest(f"{name} has values that are not finite (NaN, infinity, or minus infinity for every token).")
