"""What the output is compared with, and how a divergence is classified.

With the target's tokenizer at hand the reference is the target engine, called directly with token ids and no drafts.
Without it the reference is the orchestrator with num_draft_tokens 0.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from trt_spec.serve.contract import TARGET_MODEL
from trt_spec.verify.acceptance import ratio
from trt_spec.verify.client import TritonClient
from trt_spec.verify.judge import Judgement, find_divergence, judge_divergence, measure_gap, token_at, trim_at_end
from trt_spec.verify.lossless.faults import name_divergence
from trt_spec.verify.measure import ModelAlone

# An answer that needs more near-ties than this to be explained is not one.
MAX_NEAR_TIES = 5


@dataclass
class DirectReference:
    """The target engine called directly. Counts the tokens and seconds of its full answers."""

    client: TritonClient
    end_ids: tuple[int, ...]
    max_tokens: int
    tolerance: float
    tokens: int = field(default=0, init=False)
    seconds: float = field(default=0.0, init=False)

    def generate(self, prompt_ids: Sequence[int], label: str) -> tuple[int, ...]:
        """The target's own greedy answer, without its end token."""
        started = time.perf_counter()
        output = self.client.generate_from_ids(TARGET_MODEL, prompt_ids, self.max_tokens, self.end_ids, label=label)
        self.seconds += time.perf_counter() - started
        self.tokens += len(output)
        return trim_at_end(output, self.end_ids)

    def speed(self) -> ModelAlone:
        """tokens/s over the answers so far."""
        return ModelAlone(TARGET_MODEL, self.tokens, self.seconds, ratio(self.tokens, self.seconds))

    def judge(
        self, prompt_ids: Sequence[int], expected: Sequence[int], output_ids: Sequence[int], label: str
    ) -> Judgement:
        """Verdict on one answer; after a near-tie the rest is compared with how the target goes on from there."""
        found = trim_at_end(output_ids, self.end_ids)
        verdict = Judgement("same")
        position = find_divergence(expected, found)
        while position is not None:
            step = self._judge_at(prompt_ids, position, expected, found, label)
            if step.outcome == "different" or verdict.near_ties == MAX_NEAR_TIES:
                fault = name_divergence(expected, found, position)
                return replace(step, outcome="different", near_ties=verdict.near_ties, fault=fault)
            first = step if verdict.outcome == "same" else verdict
            verdict = replace(first, near_ties=verdict.near_ties + 1)
            kept = found[: position + 1]
            if position >= len(found) or len(kept) >= self.max_tokens:
                break
            expected = (*kept, *self._continue(prompt_ids, kept, label))
            position = find_divergence(expected, found)
        return verdict

    def _judge_at(
        self, prompt_ids: Sequence[int], position: int, expected: Sequence[int], found: Sequence[int], label: str
    ) -> Judgement:
        pair = token_at(expected, position), token_at(found, position)
        gap = None
        # Ending is a token too: the likeliest of the end ids. With no end id there is none to rate.
        if self.end_ids or None not in pair:
            context = (*prompt_ids, *found[:position])
            logits = self.client.next_token_logits(TARGET_MODEL, context, label=f"{label} (logits)")
            if logits is not None:
                end = max(self.end_ids, key=lambda token: float(logits[token]), default=0)
                gap = measure_gap(logits, [end if token is None else token for token in pair])
        return judge_divergence(position, *pair, gap, tolerance=self.tolerance)

    def _continue(self, prompt_ids: Sequence[int], kept: Sequence[int], label: str) -> tuple[int, ...]:
        output = self.client.generate_from_ids(
            TARGET_MODEL,
            (*prompt_ids, *kept),
            self.max_tokens - len(kept),
            self.end_ids,
            label=f"{label} (after a near-tie)",
        )
        return trim_at_end(output, self.end_ids)


def judge_against_orchestrator(plain_ids: Sequence[int], speculative_ids: Sequence[int]) -> Judgement:
    """Verdict without token ids of the prompt: no logits can be asked for, so any divergence counts."""
    position = find_divergence(plain_ids, speculative_ids)
    if position is None:
        return Judgement("same")
    judgement = judge_divergence(position, token_at(plain_ids, position), token_at(speculative_ids, position), None)
    return replace(judgement, fault=name_divergence(plain_ids, speculative_ids, position))
