"""Times of the engines' own steps, by direct calls such as a round makes, with several requests in flight.

Each of ``batch`` workers follows texts that the target itself wrote behind prompts of the load: a draft call for g
tokens after the text so far, then a target call that verifies the text's next g tokens. All of those are accepted, so
each call is one step, and the cached prefix grows as in a real round: the draft engine has the last token of a round to
catch up. Workers do not wait for each other, so their calls meet at the engines as those of a load do.

Means, not medians: an answer waits for the sum of its rounds. A call's way to the engine and back is in its time, as it
is in the orchestrator's.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from statistics import fmean

from trt_spec.plan.measured_speed import MeasuredSteps
from trt_spec.serve.contract import DRAFT_MODEL, TARGET_MODEL
from trt_spec.serve.rounds import STREAM_CHUNK_TOKENS
from trt_spec.verify.client import TritonClient

TEXT_TOKENS = 48
FEWEST_PLACES = 3
"""Rounds of the longest draft that a text has room for: the first of them meets a cold cache."""

FEWEST_TEXTS = 2
_TIMED_CHUNKS = 3
_TIMED_ROUNDS = 4
"""Of each length by each worker, over all its texts, where they are long enough; a text begins with one more, for the
cold cache."""


def reads_drafts(url: str, deadline_s: float) -> bool:
    """Whether the target engine takes drafts from outside; without, there is no round to time."""
    with TritonClient(url, deadline_s=deadline_s) as client:
        return "draft_input_ids" in client.interface(TARGET_MODEL).inputs


def measure_reading(
    url: str, prompts: Sequence[Sequence[int]], *, drafts_from_model: bool, deadline_s: float
) -> tuple[float, float]:
    """Seconds that (target, draft) take for a prompt of the load that comes in, beyond a step; 0.0 for no draft model.

    Prompts come in the load's order, for the second time, and each is followed by its answer's next token: so the
    engines have cached of them what they have in a load that asks them again and again. The next token takes a step.
    """
    with TritonClient(url, deadline_s=deadline_s) as client:

        def read_s(model: str, ids: Sequence[int]) -> float:
            begun = time.perf_counter()
            first = _generate(client, model, ids, 1)
            read = time.perf_counter()
            _generate(client, model, (*ids, *first), 1)
            return (read - begun) - (time.perf_counter() - read)

        def reads_s(model: str) -> float:
            return max(0.0, fmean([read_s(model, ids) for ids in (*prompts, *prompts)][len(prompts) :]))

        return reads_s(TARGET_MODEL), reads_s(DRAFT_MODEL) if drafts_from_model else 0.0


def measure_steps(
    url: str,
    prompts: Sequence[Sequence[int]],
    batch: int,
    draft_lens: Sequence[int],
    *,
    first: int = 0,
    reading_s: tuple[float, float] = (0.0, 0.0),
    drafts_from_model: bool = True,
    deadline_s: float,
) -> MeasuredSteps:
    """Mean times with ``batch`` prompts in flight; ``first`` is the number of the first one of them.

    A lone user takes several texts, so that lengths average out.
    """
    with ExitStack() as stack:
        clients = [stack.enter_context(TritonClient(url, deadline_s=deadline_s)) for _ in range(batch)]
        pool = stack.enter_context(ThreadPoolExecutor(batch))
        workers = [_Worker(client, drafts_from_model) for client in clients]
        texts = max(1, FEWEST_TEXTS // batch)
        rounds = -(-_TIMED_ROUNDS // texts)
        tokens = max(TEXT_TOKENS, FEWEST_PLACES * (max(draft_lens) + 1))
        plain: list[float] = []
        timed: dict[int, list[tuple[float, float]]] = {length: [] for length in draft_lens}
        for text in range(texts):
            rows = [prompts[(first + text * batch + index) % len(prompts)] for index in range(batch)]
            list(pool.map(_Worker.write_text, workers, rows, [tokens] * batch))
            plain += [second for row in pool.map(_Worker.plain_token_s, workers) for second in row]
            for length in draft_lens:
                calls = [pool.submit(worker.rounds, length, rounds) for worker in workers]
                timed[length] += [pair for call in calls for pair in call.result()]
    return MeasuredSteps(
        batch,
        fmean(plain),
        {length: fmean(pair[0] for pair in pairs) for length, pairs in timed.items()},
        {length: fmean(pair[1] for pair in pairs) for length, pairs in timed.items()},
        *reading_s,
    )


class _Worker:
    """One request's worth of calls."""

    def __init__(self, client: TritonClient, drafts_from_model: bool) -> None:
        self._client = client
        self._drafts_from_model = drafts_from_model
        self._prompt: tuple[int, ...] = ()
        self._text: tuple[int, ...] = ()

    def write_text(self, prompt: Sequence[int], tokens: int) -> None:
        self._prompt = tuple(prompt)
        self._text = _generate(self._client, TARGET_MODEL, self._prompt, tokens)

    def plain_token_s(self) -> list[float]:
        """Seconds a token of the target alone, in the chunks in which it streams."""
        timed = []
        for place in range(0, len(self._text), STREAM_CHUNK_TOKENS)[: _TIMED_CHUNKS + 1]:
            begun = time.perf_counter()
            _generate(self._client, TARGET_MODEL, self._prompt + self._text[:place], STREAM_CHUNK_TOKENS)
            timed.append((time.perf_counter() - begun) / STREAM_CHUNK_TOKENS)
        return timed[1:] or timed  # the first one meets a cold cache

    def rounds(self, length: int, count: int) -> list[tuple[float, float]]:
        """Seconds of (draft call, target call) of ``count`` rounds through the text, fewer if it ends."""
        timed = []
        for place in range(0, len(self._text) - length, length + 1)[: count + 1]:
            so_far = self._prompt + self._text[:place]
            drafts = self._text[place : place + length]
            begun = time.perf_counter()
            if self._drafts_from_model:
                _generate(self._client, DRAFT_MODEL, so_far, length)
            drafted = time.perf_counter()
            _generate(self._client, TARGET_MODEL, so_far, length + 1, drafts)
            timed.append((drafted - begun, time.perf_counter() - drafted))
        return timed[1:] or timed


def _generate(
    client: TritonClient, model: str, ids: Sequence[int], tokens: int, drafts: Sequence[int] = ()
) -> tuple[int, ...]:
    return client.generate_from_ids(model, ids, tokens, (), label="the timing of a step", drafts=drafts)
