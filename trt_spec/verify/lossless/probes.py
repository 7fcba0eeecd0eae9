"""Runs the probes on a deployment. Each is independent; the one that may take the server down comes last."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

from trt_spec.errors import StepFailed
from trt_spec.serve.contract import TARGET_MODEL
from trt_spec.verify.client import TritonClient
from trt_spec.verify.lossless.canary import Canary, Isolation, Leak, find_leaks, make_canaries
from trt_spec.verify.lossless.distribution import TOKENS, SampledVerdict, judge_samples
from trt_spec.verify.lossless.fuzz import ODD_PROMPTS, Fuzz, OddPrompt
from trt_spec.verify.lossless.noise import Noise
from trt_spec.verify.reference import DirectReference
from trt_spec.verify.text_request import Controls

CONCURRENCY = 8
_CANARY_TOKENS = 24
_FUZZ_TOKENS = 4

# Broad enough for many outcomes, narrow enough for their counts to be compared.
_TEMPERATURE = 1.0
_TOP_K = 4
_SECOND_SIDE = 1_000_000  # seeds of the two sides must differ: equal ones would tie their draws

_In = TypeVar("_In")
_Out = TypeVar("_Out")


@dataclass(frozen=True)
class ProbeOptions:
    """``samples`` a side and prompt (0: none), ``canaries`` (0: none), whether to fuzz, and the seed of it all."""

    samples: int = 160
    sampled_prompts: int = 2
    canaries: int = 16
    noise_prompts: int = 8
    fuzz: bool = True
    seed: int = 0


@dataclass(frozen=True)
class Probes:
    """What the probes found; None or empty for those that were not run.

    ``draft_executions``: requests that the draft model served while answers with speculation were made, by the server's
    own statistics.
    """

    sampled: tuple[SampledVerdict, ...] = ()
    isolation: Isolation | None = None
    noise: Noise | None = None
    fuzz: Fuzz | None = None
    draft_executions: int | None = None


def probe_sampling(
    client: TritonClient,
    prompts: Sequence[tuple[str, str, tuple[int, ...] | None]],
    num_draft_tokens: int | None,
    end_ids: Sequence[int],
    options: ProbeOptions,
) -> tuple[SampledVerdict, ...]:
    """``prompts``: id, text and, where the target can be called directly, token ids."""
    verdicts = []
    for name, text, ids in prompts[: options.sampled_prompts]:

        def draw_plain(seed: int, name: str = name, text: str = text, ids: Sequence[int] | None = ids) -> Sequence[int]:
            controls = Controls(temperature=_TEMPERATURE, top_k=_TOP_K, seed=options.seed + _SECOND_SIDE + seed)
            label = f"a sample of {name!r} without drafts"
            if ids is None:
                return client.infer(text, TOKENS, 0, label=label, controls=controls).output_ids
            return client.generate_from_ids(TARGET_MODEL, ids, TOKENS, end_ids, label=label, controls=controls)

        def draw(seed: int, name: str = name, text: str = text) -> Sequence[int]:
            controls = Controls(temperature=_TEMPERATURE, top_k=_TOP_K, seed=options.seed + 1 + seed)
            label = f"a sample of {name!r} with drafts"
            return client.infer(text, TOKENS, num_draft_tokens, label=label, controls=controls).output_ids

        numbers = range(options.samples)
        plain, speculative = (_map(side, numbers) for side in (draw_plain, draw))
        verdicts.append(judge_samples(name, _trim(plain, end_ids), _trim(speculative, end_ids), seed=options.seed))
    return tuple(verdicts)


def _trim(sequences: Sequence[Sequence[int]], end_ids: Sequence[int]) -> list[tuple[int, ...]]:
    """Ends are kept as one and the same token: engines differ in whether they return it."""
    trimmed = []
    for ids in sequences:
        kept = next((tuple(ids[:index]) for index, token in enumerate(ids) if token in end_ids), tuple(ids))
        trimmed.append(kept if len(kept) >= TOKENS else (*kept, -1))
    return trimmed


def probe_isolation(
    client: TritonClient, render: Callable[[str], str], num_draft_tokens: int | None, options: ProbeOptions
) -> Isolation:
    """All canaries in flight together, twice, so that the second time every prefix is in the engines' caches."""
    canaries = make_canaries(options.canaries, options.seed)

    def ask(canary: Canary) -> str | None:
        try:
            return client.infer(render(canary.text), _CANARY_TOKENS, num_draft_tokens, label=canary.id).text
        except StepFailed:
            if not client.is_alive():
                raise
            return None  # refused: this deployment takes no prompt of that length, or not so many at once

    leaks: list[Leak] = []
    answered = 0
    for _ in range(2):
        answers = _map(ask, canaries)
        answered += sum(answer is not None for answer in answers)
        leaks += find_leaks(canaries, [answer or "" for answer in answers])
    return Isolation(answered, CONCURRENCY, tuple(leaks))


def measure_noise(
    reference: DirectReference, answers: Sequence[tuple[str, tuple[int, ...], tuple[int, ...]]], options: ProbeOptions
) -> Noise:
    """``answers``: prompt id, its token ids, and what the target said to it alone. Asks for all of them at once."""
    chosen = answers[: options.noise_prompts]
    client = reference.client
    again = _map(
        lambda row: client.generate_from_ids(
            TARGET_MODEL, row[1], reference.max_tokens, reference.end_ids, label=f"prompt {row[0]!r} (in a batch)"
        ),
        chosen,
    )
    outcomes, gaps = [], []
    for (name, ids, alone), batched in zip(chosen, again, strict=True):
        judgement = reference.judge(ids, alone, batched, f"prompt {name!r} (in a batch)")
        outcomes.append(judgement.outcome)
        if judgement.outcome == "near_tie" and judgement.gap is not None:
            gaps.append(judgement.gap)
    counts = [outcomes.count(outcome) for outcome in ("same", "near_tie", "different")]
    return Noise(len(chosen), counts[0], counts[1], counts[2], max(gaps, default=None))


def probe_odd_prompts(
    client: TritonClient, num_draft_tokens: int | None, prompts: Sequence[OddPrompt] = ODD_PROMPTS
) -> Fuzz:
    """One after the other; stops at the first that takes the server down or silences it."""
    answered = refused = 0
    for prompt in prompts:
        label = f"the odd prompt {prompt.id!r}"
        try:
            client.infer(prompt.data, _FUZZ_TOKENS, num_draft_tokens, label=label)
            answered += 1
        except StepFailed as error:
            if not client.is_alive() or "no response" in error.found:
                return Fuzz(answered + refused + 1, answered, refused, prompt.id, error.found)
            refused += 1
    return Fuzz(len(prompts), answered, refused)


def _map(function: Callable[[_In], _Out], items: Sequence[_In]) -> list[_Out]:
    with ThreadPoolExecutor(CONCURRENCY) as pool:
        return list(pool.map(function, items))
