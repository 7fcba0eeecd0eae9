"""From the fields of a request to the inputs of the orchestrator."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

from trt_spec.openai.api_error import bad_request, too_long
from trt_spec.openai.request_fields import Shared
from trt_spec.openai.triton_connection import Limits
from trt_spec.openai.vocabulary import Vocabulary

_NO_END = -1


@dataclass(frozen=True)
class Generation:
    """What is asked of the orchestrator, but for the seed, which each choice has of its own."""

    inputs: dict[str, Any]
    seed: int | None
    max_tokens: int
    prompt_tokens: int
    stops: tuple[str, ...]
    stop_ids: frozenset[int]
    log_probs: bool

    def values(self, choice: int) -> dict[str, Any]:
        """The inputs of one of several choices."""
        if self.seed is None:
            return self.inputs
        return {**self.inputs, "seed": derive_seed(self.seed, choice)}


def derive_seed(seed: int, choice: int) -> int:
    """The seed of the first choice is the client's own, so that asking for one or several begins alike."""
    if choice == 0:
        return seed % 2**64
    digest = hashlib.blake2b(f"{seed}:{choice}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little")


def check_length(text: str, limits: Limits, vocabulary: Vocabulary, param: str) -> None:
    """Refuses what is certainly too long before anybody waits for it to be tokenised."""
    if len(text) > limits.max_input_len * vocabulary.longest_token:
        raise too_long(f"The prompt has {len(text)} characters, this model takes {limits.max_input_len} tokens.", param)


async def plan_generation(
    asked: Shared,
    prompt: str,
    max_tokens: int | None,
    *,
    log_probs: bool,
    limits: Limits,
    vocabulary: Vocabulary,
    param: str,
) -> Generation:
    """The checked request; ``max_tokens`` None is all there is room for, ``param`` the field of the prompt."""
    check_length(prompt, limits, vocabulary, param)
    prompt_tokens = len(await vocabulary.encode(prompt))
    if not prompt_tokens:
        raise bad_request("The prompt is empty.", param)
    room = limits.room(prompt_tokens)
    if prompt_tokens > limits.max_input_len or room < 1:
        raise too_long(f"The prompt has {prompt_tokens} tokens, this model takes {limits.max_input_len}.", param)
    if max_tokens is not None and max_tokens > room:
        message = f"max_tokens is {max_tokens}, and behind a prompt of {prompt_tokens} tokens there is room for {room}."
        raise too_long(message, "max_tokens")
    granted = room if max_tokens is None else max_tokens
    if asked.min_tokens and asked.min_tokens > granted:
        raise bad_request(f"min_tokens is {asked.min_tokens}, more than the {granted} that are allowed.", "min_tokens")
    inputs: dict[str, Any] = {
        "text_input": prompt,
        "max_tokens": granted,
        "exclude_input_in_output": True,
        "return_perf_metrics": True,
        "stream": bool(asked.stream),
        **_sampling(asked),
        **_words(asked, vocabulary),
    }
    if log_probs:
        inputs["return_log_probs"] = True
    if asked.ignore_eos:
        inputs["end_id"] = _NO_END
    stop_ids = frozenset(asked.stop_token_ids or ())
    return Generation(inputs, asked.seed, granted, prompt_tokens, asked.stops, stop_ids, log_probs)


def _sampling(asked: Shared) -> dict[str, Any]:
    """How tokens are chosen: the defaults are the API's, temperature 1 and all of the distribution."""
    if asked.temperature == 0.0 or asked.top_p == 0.0 or asked.top_k == 1:
        chosen: dict[str, Any] = {"top_k": 1}
    else:
        temperature = 1.0 if asked.temperature is None else asked.temperature
        chosen = {"temperature": temperature, "top_p": 1.0 if asked.top_p is None else asked.top_p}
        if asked.top_k is not None and asked.top_k > 0:
            chosen["top_k"] = asked.top_k
    names = ("presence_penalty", "frequency_penalty", "repetition_penalty", "min_tokens", "num_draft_tokens")
    given = {name: getattr(asked, name) for name in names}
    return chosen | {name: value for name, value in given.items() if value is not None}


def _words(asked: Shared, vocabulary: Vocabulary) -> dict[str, Any]:
    words: dict[str, Any] = {}
    stops = [*asked.stops, *map(vocabulary.stop_word, asked.stop_token_ids or ())]
    if stops:
        words["stop_words"] = stops
    if asked.logit_bias:
        biases = [(_token_id(key), bias) for key, bias in asked.logit_bias.items()]
        words["embedding_bias_words"] = [vocabulary.bias_word(token) for token, _ in biases]
        words["embedding_bias_weights"] = [bias for _, bias in biases]
    return words


def _token_id(key: str) -> int:
    if not key.isdecimal() or len(key) > 9:
        raise bad_request(f"logit_bias: {key[:20]!r} is no token id.", "logit_bias")
    return int(key)
