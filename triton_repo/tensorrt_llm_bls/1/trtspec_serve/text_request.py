"""One text request: what the client sent, checked against what the deployment can do."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, replace

from .speculate import SpeculationRequest
from .tokens import TextTokenizer
from .triton_request import BadRequest, TensorReader, check_parameters, decode_text

READ = frozenset(
    {
        "text_input",
        "max_tokens",
        "num_draft_tokens",
        "stop_words",
        "end_id",
        "top_k",
        "top_p",
        "temperature",
        "seed",
        "random_seed",
        "stream",
        "exclude_input_in_output",
        "return_perf_metrics",
    }
)
"""The inputs that the orchestrator honours."""

MAX_STOP_WORDS = 256


@dataclass(frozen=True)
class OrchestratorLimits:
    """What the deployment allows; lengths in tokens, ``max_seq_len`` being the target engine's."""

    max_input_len: int
    max_output_len: int
    max_seq_len: int
    max_draft_len: int
    max_inflight_requests: int
    max_queue_requests: int

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
    sampling = tensors.sampling(top_k="top_k", top_p="top_p")
    if tensors.seed() is None:
        sampling = replace(sampling, seed=secrets.randbits(63))
    stop_texts = tuple(word for word in _texts(tensors, "stop_words") if word)
    if len(stop_texts) > MAX_STOP_WORDS:
        raise BadRequest(f"stop_words has {len(stop_texts)} words, expected at most {MAX_STOP_WORDS}.")
    end_id = tensors.scalar("end_id")
    speculation = SpeculationRequest(
        prompt_ids=prompt_ids,
        max_tokens=_max_tokens(tensors, len(prompt_ids), limits),
        draft_len=_draft_len(tensors, limits),
        end_ids=tokenizer.end_ids if end_id is None else (end_id,) if end_id >= 0 else (),
        stop_words=tuple(ids for ids in map(tokenizer.encode_word, stop_texts) if ids),
        sampling=sampling,
        streams=tensors.flag("stream"),
    )
    excludes_input = tensors.scalar("exclude_input_in_output")
    return TextRequest(
        speculation=speculation,
        stop_texts=stop_texts,
        echo="" if excludes_input is None or excludes_input else text,
        wants_details=tensors.flag("return_perf_metrics"),
    )


def _max_tokens(tensors: TensorReader, prompt_tokens: int, limits: OrchestratorLimits) -> int:
    max_tokens = tensors.scalar("max_tokens")
    granted = min(limits.max_output_len, limits.max_seq_len - limits.max_draft_len - prompt_tokens)
    if max_tokens is None or not 0 < max_tokens <= granted:
        raise BadRequest(
            f"max_tokens is {max_tokens}, expected 1 to {granted} after a prompt of {prompt_tokens} tokens."
        )
    return int(max_tokens)


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


def _texts(tensors: TensorReader, name: str) -> list[str]:
    values = tensors.array(name)
    return [] if values is None else [decode_text(value, name) for value in values.reshape(-1)]
