"""Which sequences the next forward pass feeds, and how many tokens of each. Pure: it sees numbers, not requests.

Policy of a step, in-flight batching:

1. Requests join between steps, first come, first served, as soon as a row of the KV cache is free (``KvRows``). The
   first in the queue is never passed over, so none starves there.
2. Sequences are served least recently served first. Among equals, those with few tokens to feed (decoding, verifying
   drafts) go before prompts, older ones before younger ones.
3. A short one is fed whole or not at all; prompts are fed in chunks. All chunks of a step together have at most
   ``chunk_tokens``: an arriving prompt, however long, delays the others by no more than one chunk a step.
4. With ``max_num_tokens`` (rehearsal of TensorRT-LLM's micro-batch scheduler): a request that has not got its first
   token counts with its whole input and drafts, cached or not, any other with one. The first that does not fit ends
   the step.
5. A step has at most ``max_step_tokens``. Who did not fit was served least recently in the next step and goes first,
   so none starves here either. With the default limits everybody who decodes or verifies fits into every step.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

CHUNK_TOKENS = 128
"""Prompt tokens a step: about 160 ms of SmolLM2-135M in fp32 on two cores."""


@dataclass(frozen=True)
class StepLimits:
    """``short_tokens``: up to so many tokens are fed whole (one decoded token, or drafts and one more)."""

    short_tokens: int
    max_step_tokens: int
    chunk_tokens: int = CHUNK_TOKENS
    max_num_tokens: int | None = None

    def __post_init__(self) -> None:
        if self.short_tokens < 1 or self.chunk_tokens < 1 or self.max_step_tokens < self.short_tokens:
            raise ValueError(f"{self} cannot feed every sequence in turn")


def default_limits(max_batch_size: int, max_draft_len: int, max_num_tokens: int | None = None) -> StepLimits:
    """Room for every sequence's drafts and a chunk of a prompt beside them."""
    short = 1 + max_draft_len
    step = max_batch_size * short + CHUNK_TOKENS
    return StepLimits(short_tokens=short, max_step_tokens=step, max_num_tokens=max_num_tokens)


class Pending(NamedTuple):
    """A running sequence: tokens it has to feed, the step that served it last (-1: none), its place in arrival.

    ``counted_tokens`` is what it takes of ``max_num_tokens``; a sequence of more than that must not be running.
    """

    tokens: int
    served_step: int
    arrival: int
    counted_tokens: int = 1


class Share(NamedTuple):
    """Which of the pending sequences, and how many of its tokens are fed."""

    which: int
    tokens: int


def plan_step(pending: Sequence[Pending], limits: StepLimits) -> list[Share]:
    """The shares of the next step, in order of service; empty only if nothing is pending."""

    def is_short(sequence: Pending) -> bool:
        return sequence.tokens <= limits.short_tokens

    order = sorted(
        range(len(pending)), key=lambda i: (pending[i].served_step, not is_short(pending[i]), pending[i].arrival)
    )
    left, chunk_left = limits.max_step_tokens, limits.chunk_tokens
    count_left = math.inf if limits.max_num_tokens is None else limits.max_num_tokens
    shares = []
    for index in order:
        if pending[index].counted_tokens > count_left:
            break
        wanted = pending[index].tokens
        tokens = wanted if is_short(pending[index]) else min(wanted, chunk_left, left)
        if not 0 < tokens <= left:
            continue
        left -= tokens
        count_left -= pending[index].counted_tokens
        chunk_left -= 0 if is_short(pending[index]) else tokens
        shares.append(Share(index, tokens))
    return shares
