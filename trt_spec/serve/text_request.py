"""One text request: what the client sent, checked against what the deployment can do."""

from __future__ import annotations

import math
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import cast, get_args

import numpy as np
from numpy.typing import NDArray

from .sampling import Sampling
from .token_answer import SourceChoice, SpeculationRequest
from .tokens import TextTokenizer
from .triton_request import BadRequest, TensorReader, check_parameters, decode_text

READ = frozenset(
    {
        "text_input",
        "max_tokens",
        "num_draft_tokens",
        "draft_source",
        "use_draft_logits",
        "stop_words",
        "bad_words",
        "end_id",
        "top_k",
        "top_p",
        "temperature",
        "seed",
        "random_seed",
        "min_tokens",
        "min_length",
        "repetition_penalty",
        "presence_penalty",
        "frequency_penalty",
        "stream",
        "exclude_input_in_output",
        "return_perf_metrics",
        "return_log_probs",
        "embedding_bias_words",
        "embedding_bias_weights",
    }
)
"""The inputs that the orchestrator honours."""

MAX_WORDS = 256
MAX_WORD_CHARS = 4096
"""Of all words of one list together: every call to an engine carries their ids."""


@dataclass(frozen=True)
class OrchestratorLimits:
    """What the deployment allows; lengths in tokens, ``max_seq_len`` and ``vocab_size`` being the target engine's."""

    max_input_len: int
    max_output_len: int
    max_seq_len: int
    max_draft_len: int
    max_inflight_requests: int
    max_queue_requests: int
    vocab_size: int

    @classmethod
    def from_parameters(cls, parameters: Mapping[str, str]) -> OrchestratorLimits:
        return cls(**{name: int(parameters[name]) for name in cls.__dataclass_fields__})


@dataclass(frozen=True)
class TextRequest:
    """``echo`` is the text to put before the answer: the prompt, if the client asked to have it back."""

    speculation: SpeculationRequest
    stop_texts: tuple[str, ...]
    echo: str
    wants_details: bool


def read_text_request(
    tensors: TensorReader, parameters: str, limits: OrchestratorLimits, tokenizer: TextTokenizer
) -> TextRequest:
    """The checked request; BadRequest says what is wrong. ``parameters`` is the JSON text of Triton's parameters."""
    check_parameters(parameters, READ)
    text = tensors.text("text_input")
    if text is None:
        raise BadRequest("text_input is missing.")
    tensors.check_supported(READ)
    if len(text) > limits.max_input_len * tokenizer.longest_token:  # before others wait for it to be tokenised
        raise BadRequest(f"the prompt has {len(text)} characters, this deployment takes {limits.max_input_len} tokens.")
    prompt_ids = tokenizer.encode(text)
    if not prompt_ids:
        raise BadRequest("text_input is empty, and this model's tokenizer adds no token of its own to start from.")
    if len(prompt_ids) > limits.max_input_len:
        raise BadRequest(
            f"the prompt has {len(prompt_ids)} tokens, this deployment takes at most {limits.max_input_len}."
        )
    sampling = _sampling(tensors, limits, tokenizer)
    stop_texts = _words(tensors, "stop_words")
    end_id = tensors.scalar("end_id")
    uses_draft_logits = tensors.scalar("use_draft_logits")
    max_tokens = _max_tokens(tensors, len(prompt_ids), limits)
    if sampling.rules.min_tokens > max_tokens:
        raise BadRequest(f"min_tokens is {sampling.rules.min_tokens}, more than max_tokens {max_tokens}.")
    speculation = SpeculationRequest(
        prompt_ids=prompt_ids,
        max_tokens=max_tokens,
        draft_len=_draft_len(tensors, limits),
        fixed_len=tensors.scalar("num_draft_tokens") is not None or _has_to_repeat(tensors, sampling),
        source=_draft_source(tensors),
        uses_draft_logits=None if uses_draft_logits is None else bool(uses_draft_logits),
        end_ids=tokenizer.end_ids if end_id is None else _own_end(end_id, limits),
        stop_words=tuple(ids for ids in map(tokenizer.encode_word, stop_texts) if ids),
        sampling=sampling,
        streams=tensors.flag("stream"),
        wants_log_probs=tensors.flag("return_log_probs"),
    )
    excludes_input = tensors.scalar("exclude_input_in_output")
    return TextRequest(
        speculation=speculation,
        stop_texts=stop_texts,
        echo="" if excludes_input is None or excludes_input else text,
        wants_details=tensors.flag("return_perf_metrics"),
    )


def _sampling(tensors: TensorReader, limits: OrchestratorLimits, tokenizer: TextTokenizer) -> Sampling:
    """How tokens are chosen: greedy, unless the client sends a temperature, ``top_k`` or ``top_p``.

    An engine ignores a temperature that comes alone; whoever sends one to a text model wants it to count.
    """
    bad_texts = _words(tensors, "bad_words")
    bad_words = tuple(ids for ids in map(tokenizer.encode_word, bad_texts) if ids)
    bias = _embedding_bias(tensors, limits, tokenizer)
    sampling = tensors.sampling(top_k="top_k", top_p="top_p", bad_words=bad_words, embedding_bias=bias)
    if tensors.seed() is None:
        sampling = replace(sampling, seed=secrets.randbits(63))
    if tensors.scalar("temperature") and not (sampling.top_k or sampling.top_p):
        sampling = replace(sampling, top_p=1.0)
    return sampling


def _has_to_repeat(tensors: TensorReader, sampling: Sampling) -> bool:
    """Whether a client's seed asks for the same answer again: draws depend on where the rounds begin."""
    return tensors.seed() is not None and not sampling.is_greedy


def _max_tokens(tensors: TensorReader, prompt_tokens: int, limits: OrchestratorLimits) -> int:
    max_tokens = tensors.scalar("max_tokens")
    granted = min(limits.max_output_len, limits.max_seq_len - limits.max_draft_len - prompt_tokens)
    if max_tokens is None or not 0 < max_tokens <= granted:
        raise BadRequest(
            f"max_tokens is {max_tokens}, expected 1 to {granted} after a prompt of {prompt_tokens} tokens."
        )
    return int(max_tokens)


def _own_end(end_id: int, limits: OrchestratorLimits) -> tuple[int, ...]:
    """The client's end id; one that the model does not know, as -1, ends nothing, and engines would stumble over it."""
    return (end_id,) if 0 <= end_id < limits.vocab_size else ()


def _draft_len(tensors: TensorReader, limits: OrchestratorLimits) -> int:
    """The client's number of drafted tokens a round, or the deployed one."""
    asked = tensors.scalar("num_draft_tokens")
    if asked is None:
        return limits.max_draft_len
    if not 0 <= asked <= limits.max_draft_len:
        raise BadRequest(
            f"num_draft_tokens is {asked}, expected 0 to the deployed max_draft_len {limits.max_draft_len}."
        )
    return int(asked)


def _draft_source(tensors: TensorReader) -> SourceChoice | None:
    source = tensors.text("draft_source")
    if source and source not in get_args(SourceChoice):
        raise BadRequest(f"draft_source is {source!r}, expected {', '.join(get_args(SourceChoice))}.")
    return cast(SourceChoice, source) if source else None


def _words(tensors: TensorReader, name: str) -> tuple[str, ...]:
    """A list of words; empty ones ask for nothing."""
    return tuple(text for text in _texts(tensors, name) if text)


def _texts(tensors: TensorReader, name: str) -> tuple[str, ...]:
    values = tensors.array(name)
    texts = () if values is None else tuple(decode_text(value, name) for value in values.reshape(-1))
    words = sum(map(bool, texts))
    if words > MAX_WORDS:
        raise BadRequest(f"{name} has {words} words, expected at most {MAX_WORDS}.")
    chars = sum(map(len, texts))
    if chars > MAX_WORD_CHARS:
        raise BadRequest(f"{name} has {chars} characters in all, expected at most {MAX_WORD_CHARS}.")
    return texts


def _embedding_bias(
    tensors: TensorReader, limits: OrchestratorLimits, tokenizer: TextTokenizer
) -> NDArray[np.float32] | None:
    """What is added to the logits [vocab_size]: the weight of each word, at every id that the word is encoded to.

    As NVIDIA's preprocessing (tensorrtllm_backend v0.18.2) but for two faults there: the beginning-of-text token that
    the tokenizer adds is not biased with each word, and the length is the engine's, not the tokenizer's.
    """
    words, weights = _texts(tensors, "embedding_bias_words"), tensors.array("embedding_bias_weights")
    values = [] if weights is None else weights.reshape(-1).tolist()
    if len(words) != len(values):
        raise BadRequest(
            f"embedding_bias_words has {len(words)} words, embedding_bias_weights {len(values)} values: expected one "
            "weight for each word."
        )
    bias = np.zeros(limits.vocab_size, np.float32)
    for word, weight in zip(words, values, strict=True):
        if not math.isfinite(weight):
            raise BadRequest(f"embedding_bias_weights has {weight}, expected numbers; bad_words rules a word out.")
        for token in tokenizer.encode_word(word):
            if token >= limits.vocab_size:
                raise BadRequest(f"embedding_bias_words: {word!r} has token {token}, which the model does not know.")
            with np.errstate(over="ignore"):
                bias[token] += weight
    if not np.isfinite(bias).all():
        raise BadRequest("embedding_bias_weights of one token add up to infinity, expected a number.")
    return bias if bias.any() else None
