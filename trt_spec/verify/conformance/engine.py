"""The engine under test: the requests that probes make of it, and the text that most of them share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trt_spec.serve.contract import MIN_TOKENS_NAMES, TARGET_MODEL
from trt_spec.verify.conformance.endpoint import Answer, Endpoint, KnownLimits
from trt_spec.verify.conformance.observation import CallFailed, NotApplicable

PROMPT_TOKENS = 12
TEXT_TOKENS = 8
CANDIDATES = 8
CLEAR_GAP = 0.25
"""Logits between a text's best two tokens that no kernel's rounding overturns, whatever the batch."""
_FIRST_ID, _IDS = 4, 56  # every vocabulary has these ids, and few give them a meaning of their own


@dataclass(frozen=True)
class Text:
    """A prompt and what the engine continues it with, greedily; ``gap`` is the smallest between its best two logits.

    ``last`` is the place of a token of the answer that stands nowhere before it in the answer.
    """

    prompt: list[int]
    answer: list[int]
    gap: float | None

    @property
    def last(self) -> int:
        return max(i for i in range(TEXT_TOKENS // 2) if self.answer[i] not in self.answer[:i])


class ProbedEngine:
    """One engine model of an endpoint. ``requests`` counts what was asked of it."""

    def __init__(self, endpoint: Endpoint, limits: KnownLimits, model: str = TARGET_MODEL) -> None:
        self.limits = limits
        self.interface = endpoint.interface(model)
        self.requests = 0
        self._endpoint = endpoint
        self._model = model

    def ask(self, prompt: Sequence[int], tokens: int, **values: Any) -> Answer:
        """One request; the prompt is left out of the answer unless ``exclude_input_in_output`` says otherwise."""
        self.requests += 1
        asked = {
            "input_ids": list(prompt),
            "input_lengths": len(prompt),
            "request_output_len": tokens,
            "exclude_input_in_output": True,
            "streaming": False,
            **values,
        }
        return self._endpoint.call(self._model, {name: value for name, value in asked.items() if value is not None})

    def greedy(self, prompt: Sequence[int], tokens: int, **values: Any) -> list[int]:
        """New ids of a greedy request. Raises CallFailed."""
        return self.ask(prompt, tokens, runtime_top_k=1, **values).ids

    def verify(
        self, prompt: Sequence[int], drafts: Sequence[int], logits: NDArray[Any] | None = None, **values: Any
    ) -> list[int]:
        """New ids of a call with drafts (and their logits [drafts, vocabulary]): one more than drafts are asked for."""
        more = {} if logits is None else {"draft_logits": tuple(logits)}
        return self.ask(prompt, len(drafts) + 1, draft_input_ids=list(drafts), **more, **values).ids

    def sample(self, temperature: float, seed: int | None) -> dict[str, Any]:
        """Inputs that draw from the whole distribution, divided by ``temperature``."""
        named = {} if seed is None else {self.seed_name: seed}
        return {"temperature": temperature, "runtime_top_k": 0, "runtime_top_p": 1.0, **named}

    @property
    def seed_name(self) -> str:
        if self.interface.seed_name is None:
            raise NotApplicable(f"{self._model} declares no seed")
        return self.interface.seed_name

    @property
    def min_tokens_name(self) -> str:
        for name in MIN_TOKENS_NAMES:
            if name in self.interface.inputs:
                return name
        raise NotApplicable(f"{self._model} declares no {' or '.join(MIN_TOKENS_NAMES)}")

    def needs(self, *inputs: str) -> None:
        """Raises NotApplicable for an input that the model does not declare."""
        for name in inputs:
            if name not in self.interface.inputs:
                raise NotApplicable(f"{self._model} declares no input {name}")

    def drafts_wanted(self, most: int) -> int:
        """How many drafts a probe may send, at most ``most``. Raises NotApplicable if the engine takes none."""
        self.needs("draft_input_ids")
        if self.limits.max_draft_len == 0:
            raise NotApplicable("the engine was built without drafts (max_draft_len 0)")
        return min(most, self.limits.max_draft_len or most)

    def logits(self, prompt: Sequence[int], tokens: int = 1) -> NDArray[np.float64]:
        """Logits [tokens, vocabulary] of a greedy answer. Raises NotApplicable where the engine gives none."""
        self.needs("return_generation_logits")
        answer = self.ask(prompt, tokens, runtime_top_k=1, return_generation_logits=True)
        if answer.refusal is not None:
            raise NotApplicable(f"the engine gives no generation logits: {answer.refusal}")
        values = answer.outputs.get("generation_logits")
        if values is None or not values.size or not np.ptp(values[..., :1, :]):
            raise NotApplicable("the engine gives no generation logits (built without gather_generation_logits)")
        return values.reshape(-1, values.shape[-1]).astype(np.float64)

    @cached_property
    def text(self) -> Text:
        """The one of several made-up prompts that the engine continues most decidedly."""
        best: Text | None = None
        for number in range(CANDIDATES):
            text = self._continue(make_prompt(number))
            if best is None or (text.last > 0, text.gap or 0.0) > (best.last > 0, best.gap or 0.0):
                best = text
            if best.last > 0 and (best.gap or 0.0) > CLEAR_GAP:
                break
        assert best is not None
        return best

    @property
    def greedy_gap(self) -> float | None:
        """How decided the shared text is; None while there is none, or without logits."""
        return self.text.gap if "text" in self.__dict__ else None

    def _continue(self, prompt: list[int]) -> Text:
        answer = self.greedy(prompt, TEXT_TOKENS)
        if len(answer) != TEXT_TOKENS:
            raise CallFailed(f"{TEXT_TOKENS} greedy tokens were asked for, without an end id, and {len(answer)} came")
        try:
            logits = np.sort(self.logits(prompt, TEXT_TOKENS), axis=1)
        except NotApplicable:
            return Text(prompt, answer, None)
        return Text(prompt, answer, float((logits[:, -1] - logits[:, -2]).min()))


def make_prompt(number: int, tokens: int = PROMPT_TOKENS) -> list[int]:
    """Token ids that mean nothing, other ones for every ``number``."""
    return [_FIRST_ID + (17 * number + 7 * i * i + 3 * i) % _IDS for i in range(tokens)]
