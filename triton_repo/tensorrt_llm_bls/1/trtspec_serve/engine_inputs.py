"""The inputs of an engine call, in NVIDIA's names and in the dialect of the deployed version."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .contract import MIN_TOKENS_NAMES, SEED_NAMES
from .engine_calls import EngineCall
from .logit_rules import NEUTRAL_RULES, LogitRules
from .stopping import StopWords, pack_stop_words

RETENTION_PRIORITY = 60
"""Of a live prefix, 0 to 100; other blocks have 35 (TensorRT-LLM executor.h, KvCacheRetentionConfig)."""

RETENTION_MS = 10_000
"""The next round comes long before; what is left of an answer that has ended loses its priority after this."""

_TRUE = np.array([[True]])


class Settings(NamedTuple):
    """What of a call decides the inputs that stay while it stays; None is not sent. ``rules`` compare by identity.

    ``retains`` asks the engine to keep the blocks of the sequence, ``switch`` is an input that is true.
    """

    end_id: int | None
    stop_words: StopWords
    temperature: float | None
    top_k: int
    top_p: float | None
    rules: LogitRules
    retains: bool
    switch: str | None


@dataclass(frozen=True)
class EngineDialect:
    """``seed_name`` differs between template versions; from 0.17 on an engine ``takes_retention`` inputs."""

    seed_name: str
    takes_retention: bool = False

    @property
    def min_tokens_name(self) -> str:
        return MIN_TOKENS_NAMES[SEED_NAMES.index(self.seed_name)]

    def settings(self, call: EngineCall, *, crowded: bool, switch: str | None = None) -> Settings:
        """``crowded`` tells that other requests use the engine's cache too.

        The blocks of one that is alone are the most recently used anyway, and six tensors more have their price.
        """
        sampling, rules = call.sampling, call.sampling.rules
        temperature: float | None
        if sampling.is_greedy:
            # Penalties come behind the temperature.
            temperature = sampling.divisor if sampling.divisor != 1.0 and not rules.is_neutral else None
            top_k, top_p = 1, None
        else:
            temperature, top_k, top_p = sampling.temperature, sampling.top_k, sampling.top_p
        retains = crowded and self.takes_retention
        return Settings(call.end_id, call.stop_words, temperature, top_k, top_p, rules, retains, switch)

    def lasting_inputs(self, settings: Settings, vocab_size: int) -> dict[str, Any]:
        """Input tensors [1, ...] by name; ``vocab_size`` is that of the engine they go to."""
        values: dict[str, Any] = {
            "exclude_input_in_output": _TRUE,
            "runtime_top_k": np.array([[settings.top_k]], np.int32),
        }
        if settings.end_id is not None:
            values["end_id"] = values["pad_id"] = np.array([[settings.end_id]], np.int32)
        if settings.stop_words:
            values["stop_words_list"] = pack_stop_words(settings.stop_words)[None]
        if settings.temperature is not None:
            values["temperature"] = np.array([[settings.temperature]], np.float32)
        if settings.top_p is not None:
            values["runtime_top_p"] = np.array([[settings.top_p]], np.float32)
        if settings.retains:
            values |= _retention()
        if settings.switch is not None:
            values[settings.switch] = _TRUE
        return values | self._rules(settings.rules, vocab_size)

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


def length_inputs(max_new_tokens: int) -> dict[str, Any]:
    """Input tensors [1, ...] by name, of how many tokens a call is for."""
    return {"request_output_len": np.array([[max_new_tokens]], np.int32)}


def text_inputs(ids: NDArray[np.int32], *, retains: bool) -> dict[str, Any]:
    """Input tensors [1, ...] by name, of the ids that a call goes on behind; they are kept if it ``retains`` them."""
    length = np.array([[len(ids)]], np.int32)
    values: dict[str, Any] = {"input_ids": ids[None], "input_lengths": length}
    if retains:
        values["retention_token_range_ends"] = length
    return values


def _retention() -> dict[str, Any]:
    """Keeps the blocks of a sequence between its rounds, where the cache would otherwise give them to others first."""
    return {
        "retention_token_range_starts": np.array([[0]], np.int32),
        "retention_token_range_priorities": np.array([[RETENTION_PRIORITY]], np.int32),
        "retention_token_range_durations_ms": np.array([[RETENTION_MS]], np.int32),
        "retention_decode_priority": np.array([[RETENTION_PRIORITY]], np.int32),
        "retention_decode_duration_ms": np.array([[RETENTION_MS]], np.int32),
    }
