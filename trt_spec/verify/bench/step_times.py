"""Times of the engines' own steps, by direct calls such as a round makes, with several requests in flight.

Each of ``batch`` workers follows a text that the target itself wrote: a draft call for g tokens after the text so far,
then a target call that verifies the text's next g tokens. All of those are accepted, so each call is one step, and the
cached prefix grows as in a real round.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from statistics import median

from trt_spec.plan.measured_speed import MeasuredSteps
from trt_spec.serve.contract import DRAFT_MODEL, TARGET_MODEL
from trt_spec.verify.client import TritonClient

TEXT_TOKENS = 48
_PLAIN_TOKENS = 25
_MOST_ROUNDS = 8


def measure_steps(
    url: str,
    prompts: Sequence[Sequence[int]],
    batch: int,
    draft_lens: Sequence[int],
    *,
    drafts_from_model: bool = True,
    deadline_s: float,
) -> MeasuredSteps | None:
    """Median times with ``batch`` prompts in flight; None where the engine takes no drafts from outside."""
    with ExitStack() as stack:
        clients = [stack.enter_context(TritonClient(url, deadline_s=deadline_s)) for _ in range(batch)]
        pool = stack.enter_context(ThreadPoolExecutor(batch))
        if "draft_input_ids" not in clients[0].interface(TARGET_MODEL).inputs:
            return None
        rows = [prompts[index % len(prompts)] for index in range(batch)]
        workers = [_Worker(client, row) for client, row in zip(clients, rows, strict=True)]
        list(pool.map(_Worker.write_text, workers))
        plain_s = median(pool.map(_Worker.plain_token_s, workers))
        draft_s, verify_s = {}, {}
        for length in draft_lens:
            calls = [pool.submit(worker.rounds, length, drafts_from_model) for worker in workers]
            timed = [pair for call in calls for pair in call.result()]
            draft_s[length] = median(pair[0] for pair in timed)
            verify_s[length] = median(pair[1] for pair in timed)
    return MeasuredSteps(batch, plain_s, draft_s, verify_s)


class _Worker:
    """One request's worth of calls."""

    def __init__(self, client: TritonClient, prompt: Sequence[int]) -> None:
        self._client = client
        self._prompt = tuple(prompt)
        self._text: tuple[int, ...] = ()

    def write_text(self) -> None:
        self._text = self._generate(TARGET_MODEL, self._prompt, TEXT_TOKENS)

    def plain_token_s(self) -> float:
        """Seconds a token of the target alone: a long answer less a short one."""
        short = _timed(lambda: self._generate(TARGET_MODEL, self._prompt, 1))
        return (_timed(lambda: self._generate(TARGET_MODEL, self._prompt, _PLAIN_TOKENS)) - short) / (_PLAIN_TOKENS - 1)

    def rounds(self, length: int, drafts_from_model: bool) -> list[tuple[float, float]]:
        """Seconds of (draft call, target call) of each round through the text."""
        timed = []
        for place in range(0, len(self._text) - length, length + 1)[: _MOST_ROUNDS + 1]:
            so_far = self._prompt + self._text[:place]
            drafts = self._text[place : place + length]
            begun = time.perf_counter()
            if drafts_from_model:
                self._generate(DRAFT_MODEL, so_far, length)
            drafted = time.perf_counter()
            self._generate(TARGET_MODEL, so_far, length + 1, drafts)
            timed.append((drafted - begun, time.perf_counter() - drafted))
        return timed[1:] or timed  # the first one meets a cold cache

    def _generate(self, model: str, ids: Sequence[int], tokens: int, drafts: Sequence[int] = ()) -> tuple[int, ...]:
        return self._client.generate_from_ids(model, ids, tokens, (), label="the timing of a step", drafts=drafts)


def _timed(call: Callable[[], object]) -> float:
    begun = time.perf_counter()
    call()
    return time.perf_counter() - begun
