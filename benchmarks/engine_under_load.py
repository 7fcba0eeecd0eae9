"""The local engine with others about: a stream's gaps while a long prompt arrives, memory over many mixed requests."""

from __future__ import annotations

import random
import statistics
import time
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from trt_spec.serve.local_backend.batcher import Batcher, Job, Outcome, RequestCancelled
from trt_spec.serve.local_backend.engine import Engine
from trt_spec.serve.local_backend.feed import Piece
from trt_spec.serve.local_backend.scheduler import CHUNK_TOKENS
from trt_spec.serve.local_backend.sequence import GenerateRequest, GenerateResult
from trt_spec.serve.sampling import Sampling

ARRIVING_TOKENS = 1000
QUIET_STEPS = 24
SAMPLES = 10
LONGEST_PROMPT_TOKENS, LONGEST_ANSWER_TOKENS = CHUNK_TOKENS + 32, 24  # every fifth takes a second chunk
FIRST_ID, IDS = 1000, 4000


@dataclass(frozen=True)
class Arrival:
    """Milliseconds between the tokens of a stream: alone (median), and while the prompt is read (longest, median).

    ``chunk_ms`` is a forward pass over the last whole chunk of the prompt, which takes longest, and nothing else.
    """

    quiet_ms: float
    longest_ms: float
    median_ms: float
    chunk_ms: float


def measure_arrival(engine: Engine, prompt: list[int]) -> Arrival:
    """The stream answers ``prompt``; ARRIVING_TOKENS of another prompt join it after QUIET_STEPS tokens."""
    told: list[float] = []
    ended: list[Outcome] = []

    def note(_: GenerateResult) -> None:
        told.append(time.perf_counter())

    batcher = Batcher(engine)
    steps = QUIET_STEPS + 4 * ARRIVING_TOKENS // CHUNK_TOKENS + 4
    stream = Job(GenerateRequest(prompt, steps, streams=True), lambda _: None, deliver_part=note)
    batcher.submit(stream)
    while len(told) <= QUIET_STEPS:
        batcher.step()
    arriving = [FIRST_ID + 7 * i % IDS for i in range(ARRIVING_TOKENS)]
    batcher.submit(Job(GenerateRequest(arriving, 1), ended.append))
    while not ended:
        batcher.step()
    batcher.stop(stream)
    (outcome,) = ended
    if isinstance(outcome, Exception):
        raise outcome
    gaps = [(later - earlier) * 1e3 for earlier, later in pairwise(told)]
    quiet, beside = gaps[:QUIET_STEPS], gaps[QUIET_STEPS:]
    return Arrival(statistics.median(quiet), max(beside), statistics.median(beside), _chunk_ms(engine))


def _chunk_ms(engine: Engine) -> float:
    row, past = engine.rows.rows[0], (ARRIVING_TOKENS // CHUNK_TOKENS - 1) * CHUNK_TOKENS
    row.write(0, [FIRST_ID] * past)
    started = time.perf_counter()
    engine.forward([Piece(row.index, past, [FIRST_ID] * CHUNK_TOKENS, 1)])
    seconds = time.perf_counter() - started
    engine.rows.release(row, keep=False)
    return seconds * 1e3


def measure_memory(engine: Engine, requests: int) -> list[tuple[int, float, float]]:
    """(requests served, MiB of its own, MiB of mapped files) of this process, SAMPLES times on the way to ``requests``.

    They are short and long, greedy and sampled, with drafts, with log-probabilities, cancelled and repeated ones, up to
    twice as many at a time as the engine has rows.
    """
    draws = random.Random(5)
    batcher = Batcher(engine)
    ended: list[Outcome] = []
    earlier: list[list[int]] = []
    seen: list[tuple[int, float, float]] = []
    submitted = 0
    # Every row as long as it ever becomes: pages of the cache take memory when they are first written.
    for row in range(len(engine.rows.rows)):
        ids = [FIRST_ID + row] * LONGEST_PROMPT_TOKENS
        batcher.submit(Job(GenerateRequest(ids, LONGEST_ANSWER_TOKENS), ended.append))
        submitted += 1
    while len(ended) < requests:
        while submitted < requests and submitted - len(ended) < 2 * len(engine.rows.rows):
            batcher.submit(_mixed_job(draws, engine, earlier, ended))
            submitted += 1
        batcher.step()
        if len(ended) >= (len(seen) + 1) * requests // SAMPLES:
            seen.append((len(ended), resident_mib("RssAnon"), resident_mib("RssFile")))
    failed = [one for one in ended if isinstance(one, Exception) and not isinstance(one, RequestCancelled)]
    if failed:
        raise failed[0]
    return seen


def _mixed_job(draws: random.Random, engine: Engine, earlier: list[list[int]], ended: list[Outcome]) -> Job:
    ids = [draws.randrange(FIRST_ID, FIRST_ID + IDS) for _ in range(draws.randint(1, LONGEST_PROMPT_TOKENS))]
    if earlier and draws.random() < 0.3:
        ids = [*draws.choice(earlier), *ids[:8]][:LONGEST_PROMPT_TOKENS]
    earlier.append(ids)
    del earlier[:-16]
    drafts = ids[:4] if engine.limits.max_draft_len >= 4 and draws.random() < 0.3 else []
    request = GenerateRequest(
        ids,
        len(drafts) + 1 if drafts else draws.randint(1, LONGEST_ANSWER_TOKENS),
        drafts,
        sampling=Sampling(top_p=0.9, seed=draws.getrandbits(32)) if draws.random() < 0.5 else Sampling(),
        return_log_probs=draws.random() < 0.2,
        return_logits=draws.random() < 0.1,
        streams=draws.random() < 0.3,
    )
    patience = draws.randint(1, 20) if draws.random() < 0.1 else None  # how often a client is asked before it leaves
    asked = [0]

    def is_cancelled() -> bool:
        asked[0] += 1
        return patience is not None and asked[0] > patience

    return Job(request, lambda outcome: ended.append(_without_arrays(outcome)), is_cancelled)


def _without_arrays(outcome: Outcome) -> Outcome:
    """Logits that this list kept alive would be counted as the engine's."""
    return outcome if isinstance(outcome, Exception) else GenerateResult([])


def resident_mib(kind: str) -> float:
    """Resident memory of this process, by its name in /proc/self/status (Linux).

    RssFile holds the pages of the weights' file that were read: new words touch new rows of the embedding.
    """
    (line,) = [line for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines() if kind in line]
    return int(line.split()[1]) / 1024
