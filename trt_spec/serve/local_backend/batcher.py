"""In-flight batching: requests join and leave between the steps of one engine, and share each step's forward pass."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from .engine import Engine
from .feed import Piece
from .scheduler import Pending, StepLimits, default_limits, plan_step
from .sequence import GenerateRequest, GenerateResult, RunningSequence


class RequestCancelled(Exception):
    """The client went away."""


Outcome = GenerateResult | Exception


class Job:
    """A request that was checked, whether its client still waits, and where its outcome goes.

    ``deliver`` is called exactly once, after ``deliver_part`` for whatever a streaming request had before; neither may
    raise.
    """

    def __init__(
        self,
        request: GenerateRequest,
        deliver: Callable[[Outcome], None],
        is_cancelled: Callable[[], bool] = lambda: False,
        deliver_part: Callable[[GenerateResult], None] = lambda _: None,
    ) -> None:
        self.request = request
        self.deliver = deliver
        self.is_cancelled = is_cancelled
        self.deliver_part = deliver_part
        self.asked_step = -1  # the step that asked last whether its client still waits


class Batcher:
    """Runs jobs on an engine, all that have a row of its KV cache at the same time. For one thread."""

    def __init__(self, engine: Engine, limits: StepLimits | None = None) -> None:
        self._engine = engine
        built = engine.limits
        self._limits = limits or default_limits(built.max_batch_size, built.max_draft_len, built.max_num_tokens)
        self._waiting: deque[Job] = deque()
        self._running: list[tuple[Job, RunningSequence]] = []
        self._step = 0

    @property
    def is_idle(self) -> bool:
        return not self._waiting and not self._running

    def submit(self, job: Job) -> None:
        """The job joins with one of the next steps."""
        self._waiting.append(job)

    def abort(self, reason: Exception) -> None:
        """Ends every job with ``reason``."""
        running, waiting = self._running, self._waiting
        self._running, self._waiting = [], deque()
        for job, sequence in running:
            self._finish(job, sequence, reason)
        for job in waiting:
            job.deliver(reason)

    def stop(self, job: Job) -> None:
        """Ends a job, if it has not ended, with what it has, as the C++ engine does at a ``stop`` request."""
        if job in self._waiting:
            self._waiting.remove(job)
            job.deliver(GenerateResult([]))
        for running, sequence in self._running:
            if running is job:
                self._finish(job, sequence, sequence.take_result())
        self._running = [(running, sequence) for running, sequence in self._running if running is not job]

    def step(self) -> None:
        """Lets waiting jobs in, feeds the next piece of the running ones, and delivers what has ended."""
        self._drop_running()
        self._admit()
        self._drop_waiting()
        if not self._running:
            return
        pending = [
            Pending(sequence.pending_tokens, sequence.served_step, arrival, sequence.counted_tokens)
            for arrival, (_, sequence) in enumerate(self._running)
        ]
        shares = plan_step(pending, self._limits)
        served = [self._running[share.which] for share in shares]
        pieces = [sequence.next_piece(share.tokens) for (_, sequence), share in zip(served, shares, strict=True)]
        self._feed(served, pieces)
        self._running = [(job, sequence) for job, sequence in self._running if not sequence.finished]
        self._step += 1

    def _drop_running(self) -> None:
        """Asks one running job a step, in rotation, whether its client went away: that is a call to another process.

        Whoever left is noticed within as many steps as there are running jobs.
        """
        if not self._running:
            return
        job, sequence = min(self._running, key=lambda entry: entry[0].asked_step)
        if (fault := self._ask(job)) is not None:
            self._running.remove((job, sequence))
            self._finish(job, sequence, fault)

    def _drop_waiting(self) -> None:
        """The same for those in the queue, which are asked once more when their turn comes."""
        if not self._waiting:
            return
        job = min(self._waiting, key=lambda waiting: waiting.asked_step)
        if (fault := self._ask(job)) is not None:
            self._waiting.remove(job)
            job.deliver(fault)

    def _ask(self, job: Job) -> Exception | None:
        """Why a job must end: its client went away, or cannot be asked."""
        job.asked_step = self._step
        try:
            return RequestCancelled() if job.is_cancelled() else None
        except Exception as error:  # noqa: BLE001 - it stays with this request
            return error

    def _admit(self) -> None:
        """First come, first served, while there is a row; a request that cannot start fails alone."""
        while self._waiting and not self._engine.rows.is_full:
            job = self._waiting.popleft()
            if (fault := self._ask(job)) is not None:
                job.deliver(fault)
                continue
            try:
                sequence = self._start(job.request)
            except Exception as error:  # noqa: BLE001 - it stays with this request
                job.deliver(error)
                continue
            self._running.append((job, sequence))

    def _start(self, request: GenerateRequest) -> RunningSequence:
        placement = self._engine.rows.acquire(request.input_ids)
        try:
            if request.return_context_logits:  # of the whole input, so all of it is fed
                placement.row.write(0, ())
                placement = replace(placement, cached_tokens=0, copy_from=None)
            self._engine.place(placement)
            return RunningSequence(request, placement.row, placement.cached_tokens)
        except Exception:
            self._engine.rows.release(placement.row, keep=False)
            raise

    def _feed(self, served: Sequence[tuple[Job, RunningSequence]], pieces: Sequence[Piece]) -> None:
        """One forward pass for all; if it fails, one for each, so that only those fail that must."""
        try:
            logits = self._engine.forward(pieces)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is tried for each alone
            if len(served) == 1:
                self._finish(*served[0], error)
                return
            for entry, piece in zip(served, pieces, strict=True):
                self._feed([entry], [piece])
            return
        greedy = [rows.argmax(axis=1) if len(rows) else np.empty(0, np.int64) for rows in logits]
        for (job, sequence), piece, rows, best in zip(served, pieces, logits, greedy, strict=True):
            self._advance(job, sequence, piece, rows, best)

    def _advance(
        self,
        job: Job,
        sequence: RunningSequence,
        piece: Piece,
        logits: NDArray[np.float32],
        greedy: NDArray[np.int64],
    ) -> None:
        sequence.served_step = self._step
        try:
            sequence.advance(piece, logits, greedy)
        except Exception as error:  # noqa: BLE001 - it stays with this request
            self._finish(job, sequence, error)
            return
        if sequence.finished:
            self._finish(job, sequence, sequence.take_result())
        elif job.request.streams and sequence.has_news:
            job.deliver_part(sequence.take_result())

    def _finish(self, job: Job, sequence: RunningSequence, outcome: Outcome) -> None:
        """The end of every sequence. A failed one leaves nothing in its row, nor one whose logits nobody has seen."""
        failed = isinstance(outcome, Exception) and not isinstance(outcome, RequestCancelled)
        self._engine.rows.release(sequence.row, keep=sequence.saw_logits and not failed)
        sequence.finished = True
        job.deliver(outcome)
