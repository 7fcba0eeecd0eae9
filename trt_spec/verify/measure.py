"""Speed with and without speculation, in alternating order, and the arithmetic over it.

Both sides are unary requests to the orchestrator; the plain one sets num_draft_tokens 0, which asks the target engine
for many tokens at once: as fast as calling it directly, which the report shows beside it. The order flips with every
prompt, because machines slow down and caches warm up within minutes.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from trt_spec.verify.acceptance import ratio
from trt_spec.verify.client import Generation, TritonClient
from trt_spec.verify.summary import median_of_known

PLAIN_DRAFT_TOKENS = 0
# Enough for the first draft-and-verify round to run at its full length.
FIRST_TOKEN_STREAM_TOKENS = 16


@dataclass(frozen=True)
class Sample:
    """One prompt on one side."""

    generation: Generation
    time_to_first_token_s: float | None

    @property
    def tokens(self) -> int:
        """Tokens generated."""
        return len(self.generation.output_ids)

    @property
    def tokens_per_s(self) -> float | None:
        """Tokens generated per second of the whole unary request, prefill included."""
        return ratio(self.tokens, self.generation.seconds)


@dataclass(frozen=True)
class Pair:
    """One prompt on both sides."""

    plain: Sample
    speculative: Sample


@dataclass(frozen=True)
class Side:
    """One side over all prompts; ``tokens_per_s`` is total tokens / total seconds."""

    tokens: int
    seconds: float
    tokens_per_s: float | None
    median_tokens_per_s: float | None
    median_time_to_first_token_s: float | None


@dataclass(frozen=True)
class ModelAlone:
    """Greedy decoding of one engine called directly, without the orchestrator."""

    model: str
    tokens: int
    seconds: float
    tokens_per_s: float | None


def measure_pair(
    client: TritonClient,
    text: str,
    render: Callable[[str], str],
    *,
    max_tokens: int,
    num_draft_tokens: int | None,
    plain_first: bool,
    label: str,
) -> Pair:
    """Runs one prompt on both sides, in the given order. ``text`` is the user's message; ``render`` formats it."""
    prompt = render(text)
    lengths = {"plain": PLAIN_DRAFT_TOKENS, "speculative": num_draft_tokens}
    order = ("plain", "speculative") if plain_first else ("speculative", "plain")
    generations = {
        side: client.infer(prompt, max_tokens, lengths[side], label=_side_label(label, side)) for side in order
    }
    first_tokens: dict[str, float | None] = {}
    for side in order:
        # Engines keep the prefix of recent prompts. A fresh word at its start makes every first token a cold one, so
        # that whichever side runs second gains nothing.
        cold = render(f"{os.urandom(3).hex()} {text}")
        first_tokens[side] = client.time_to_first_token(
            cold,
            min(max_tokens, FIRST_TOKEN_STREAM_TOKENS),
            lengths[side],
            label=f"{_side_label(label, side)} as a stream",
        )
    return Pair(*(Sample(generations[side], first_tokens[side]) for side in ("plain", "speculative")))


def _side_label(label: str, side: str) -> str:
    return f"{label} ({'without' if side == 'plain' else 'with'} drafts)"


def measure_model_alone(
    client: TritonClient,
    model_name: str,
    prompts_ids: Sequence[Sequence[int]],
    max_tokens: int,
    end_ids: Sequence[int] = (),
) -> ModelAlone:
    """Speed of one engine by direct calls, one prompt at a time; the first prompt runs once before as warm-up."""
    if prompts_ids:
        client.generate_from_ids(model_name, prompts_ids[0], max_tokens, end_ids, label="the warm-up")
    tokens, seconds = 0, 0.0
    for number, ids in enumerate(prompts_ids, start=1):
        started = time.perf_counter()
        tokens += len(
            client.generate_from_ids(model_name, ids, max_tokens, end_ids, label=f"prompt {number} (called directly)")
        )
        seconds += time.perf_counter() - started
    return ModelAlone(model_name, tokens, seconds, ratio(tokens, seconds))


def summarise_side(samples: Sequence[Sample]) -> Side:
    """Totals and medians of one side."""
    tokens = sum(sample.tokens for sample in samples)
    seconds = sum(sample.generation.seconds for sample in samples)
    return Side(
        tokens=tokens,
        seconds=seconds,
        tokens_per_s=ratio(tokens, seconds),
        median_tokens_per_s=median_of_known([sample.tokens_per_s for sample in samples]),
        median_time_to_first_token_s=median_of_known([sample.time_to_first_token_s for sample in samples]),
    )


def measure_speedup_of_pairs(pairs: Sequence[Pair]) -> float | None:
    """Median over the prompts of speculative / plain tokens per second."""
    return median_of_known([measure_speedup(pair.speculative.tokens_per_s, pair.plain.tokens_per_s) for pair in pairs])


def measure_speedup(numerator: float | None, denominator: float | None) -> float | None:
    """speculative / plain, None when either is unknown."""
    return None if numerator is None or denominator is None else ratio(numerator, denominator)
