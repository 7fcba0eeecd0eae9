"""The inputs of an engine call, in NVIDIA's names and in the dialect of the deployed version."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .contract import MIN_TOKENS_NAMES, SEED_NAMES
from .engine_calls import EngineCall
from .logit_rules import NEUTRAL_RULES, LogitRules
from .stopping import pack_stop_words

RETENTION_PRIORITY = 60
"""Of a live prefix, 0 to 100; other blocks have 35 (TensorRT-LLM executor.h, KvCacheRetentionConfig)."""

RETENTION_MS = 10_000
"""The next round comes long before; what is left of an answer that has ended loses its priority after this."""

TRUE = np.array([[True]])


@dataclass(frozen=True)
class EngineDialect:
    """``seed_name`` differs between template versions; from 0.17 on an engine ``takes_retention`` inputs."""

    seed_name: str
    takes_retention: bool = False

    @property
    def min_tokens_name(self) -> str:
        return MIN_TOKENS_NAMES[SEED_NAMES.index(self.seed_name)]

    def text_inputs(self, ids: NDArray[np.int32], *, crowded: bool) -> dict[str, Any]:
        """Input tensors [1, ...] by name, of the ids that a call goes on behind."""
        length = np.array([[len(ids)]], np.int32)
        values: dict[str, Any] = {"input_ids": ids[None], "input_lengths": length}
        if self.takes_retention and crowded:
            values["retention_token_range_ends"] = length
        return values

    def round_inputs(self, call: EngineCall) -> dict[str, Any]:
        """Input tensors [1, ...] by name, of what is another in every call."""
        values: dict[str, Any] = {}
        if call.draft_ids:
            values["draft_input_ids"] = np.array([call.draft_ids], np.int32)
            if call.draft_logits is not None:
                values["draft_logits"] = call.draft_logits[None]
        if not call.sampling.is_greedy:
            values[self.seed_name] = np.array([[call.sampling.seed]], np.uint64)
        return values

    def lasting_inputs(self, call: EngineCall, vocab_size: int, *, crowded: bool) -> dict[str, Any]:
        """Input tensors [1, ...] by name, of what stays while ``lasting_settings`` stay.

        ``vocab_size`` is that of the engine it goes to. ``crowded`` tells that other requests use the engine's cache
        too: the blocks of one that is alone are the most recently used anyway, and six tensors more have their price.
        """
        values: dict[str, Any] = {
            "request_output_len": np.array([[call.max_new_tokens]], np.int32),
            "exclude_input_in_output": TRUE,
        }
        if call.end_id is not None:
            values["end_id"] = values["pad_id"] = np.array([[call.end_id]], np.int32)
        if call.stop_words:
            values["stop_words_list"] = pack_stop_words(call.stop_words)[None]
        sampling = call.sampling
        if sampling.is_greedy:
            values["runtime_top_k"] = np.array([[1]], np.int32)
            if sampling.divisor != 1.0 and not sampling.rules.is_neutral:
                values["temperature"] = np.array([[sampling.divisor]], np.float32)  # penalties come behind it
        else:
            values["temperature"] = np.array([[sampling.temperature]], np.float32)
            values["runtime_top_k"] = np.array([[sampling.top_k]], np.int32)
            values["runtime_top_p"] = np.array([[sampling.top_p]], np.float32)
        if self.takes_retention and crowded:
            values |= _retention()
        return values | self._rules(sampling.rules, vocab_size)

    def _rules(self, rules: LogitRules, vocab_size: int) -> dict[str, Any]:
        """Inputs for what a request changes about the logits; nothing for what it leaves alone."""
        values: dict[str, Any] = {}
        for name in ("repetition_penalty", "presence_penalty", "frequency_penalty"):
            if getattr(rules, name) != getattr(NEUTRAL_RULES, name):
                values[name] = np.array([[getattr(rules, name)]], np.float32)
        if rules.min_tokens:
            values[self.min_tokens_name] = np.array([[rules.min_tokens]], np.int32)
        if rules.bad_words:
            values["bad_words_list"] = pack_stop_words(rules.bad_words)[None]
        if rules.embedding_bias is not None:
            # Draft and target may differ in ids that no text has; an engine takes its own length alone.
            bias = rules.embedding_bias[:vocab_size]
            if len(bias) < vocab_size:
                bias = np.pad(bias, (0, vocab_size - len(bias)))
            values["embedding_bias"] = bias[None]
        return values


def lasting_settings(call: EngineCall) -> tuple[Any, ...]:
    """What ``EngineDialect.lasting_inputs`` makes of a call, and compares: no two calls differ in the rest alone."""
    sampling = call.sampling
    return (
        call.max_new_tokens,
        call.end_id,
        call.stop_words,
        sampling.temperature,
        sampling.top_k,
        sampling.top_p,
        sampling.rules,
    )


def _retention() -> dict[str, Any]:
    """Keeps the blocks of a sequence between its rounds, where the cache would otherwise give them to others first."""
    return {
        "retention_token_range_starts": np.array([[0]], np.int32),
        "retention_token_range_priorities": np.array([[RETENTION_PRIORITY]], np.int32),
        "retention_token_range_durations_ms": np.array([[RETENTION_MS]], np.int32),
        "retention_decode_priority": np.array([[RETENTION_PRIORITY]], np.int32),
        "retention_decode_duration_ms": np.array([[RETENTION_MS]], np.int32),
    }
