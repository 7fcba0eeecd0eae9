"""Runs a load: sends by the arrival's clock, times every message, and loses no request."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Callable, Iterator, Sequence

from trt_spec.errors import StepFailed
from trt_spec.verify.load.arrival import Arrival, Bounds, ClosedLoop, Poisson, Replay
from trt_spec.verify.load.deadline import Deadline
from trt_spec.verify.load.request import Endpoint, LoadRequest, RequestFailed
from trt_spec.verify.load.transcript import Transcript
from trt_spec.verify.results import LoadResult, Outcome, RequestResult

CountTokens = Callable[[str], int]


class Load:
    """One load on one open endpoint. ``result`` is valid at any moment, also after a cancelled ``run``."""

    def __init__(
        self,
        endpoint: Endpoint,
        requests: Sequence[LoadRequest],
        arrival: Arrival,
        bounds: Bounds,
        deadline: Deadline,
        count_tokens: CountTokens | None = None,
    ) -> None:
        self._endpoint = endpoint
        self._queue: Iterator[LoadRequest] = itertools.islice(itertools.cycle(requests), bounds.max_requests)
        self._arrival = arrival
        self._max_s = bounds.max_s
        self._deadline = deadline
        self._count_tokens = count_tokens
        self._done: list[RequestResult] = []
        self._started = time.perf_counter()
        self._finished = False
        self._seconds = 0.0

    @property
    def result(self) -> LoadResult:
        """What is known now, in the order of sending."""
        seconds = self._seconds if self._finished else self._elapsed()
        ordered = tuple(sorted(self._done, key=lambda item: item.sent_s))
        return LoadResult(seconds, ordered, interrupted=not self._finished)

    async def run(self) -> LoadResult:
        """Sends everything and waits for the last answer. Raises what ``Endpoint.stream`` raises but RequestFailed."""
        self._started = time.perf_counter()
        try:
            if isinstance(self._arrival, ClosedLoop):
                await self._be_users(self._arrival.concurrency)
            else:
                await self._send_by_clock(self._arrival)
        except ExceptionGroup as group:
            raise group.exceptions[0] from None
        self._seconds = self._elapsed()
        self._finished = True
        return self.result

    def _elapsed(self) -> float:
        return time.perf_counter() - self._started

    async def _be_users(self, concurrency: int) -> None:
        async with asyncio.TaskGroup() as users:
            for _ in range(concurrency):
                users.create_task(self._be_user())

    async def _be_user(self) -> None:
        for request in self._queue:
            if self._elapsed() >= self._max_s:
                return
            await self._send(request, due_s=None)

    async def _send_by_clock(self, arrival: Poisson | Replay) -> None:
        places = asyncio.Semaphore(arrival.max_in_flight)
        async with asyncio.TaskGroup() as tasks:
            for request, due_s in zip(self._queue, arrival.due_s(), strict=False):
                if due_s >= self._max_s:
                    return
                await asyncio.sleep(max(0.0, due_s - self._elapsed()))
                await places.acquire()
                task = tasks.create_task(self._send(request, due_s))
                task.add_done_callback(lambda _: places.release())

    async def _send(self, request: LoadRequest, due_s: float | None) -> None:
        sent = time.perf_counter()
        transcript = Transcript()
        outcome: Outcome = "answered"
        error = ""
        try:
            await self._read_stream(request, transcript, sent)
        except RequestFailed as failure:
            outcome, error = "failed", str(failure)
        except TimeoutError:
            outcome, error = "timed_out", self._deadline.explain(started=transcript.has_begun)
        latency_s = time.perf_counter() - sent
        sent_s = sent - self._started
        delay_s = 0.0 if due_s is None else max(0.0, sent_s - due_s)
        self._done.append(
            transcript.result(
                request, outcome, error, sent_s=sent_s, delay_s=delay_s, latency_s=latency_s, count=self._count_tokens
            )
        )

    async def _read_stream(self, request: LoadRequest, transcript: Transcript, sent: float) -> None:
        loop = asyncio.get_running_loop()
        begun = loop.time()
        _, limit_s = self._deadline.limit(started=False)
        stream = self._endpoint.stream(request)
        try:
            async with asyncio.timeout(limit_s) as clock:
                async for message in stream:
                    first = not transcript.has_begun
                    transcript.add(message, time.perf_counter() - sent)
                    if first and transcript.has_begun:
                        total_s = self._deadline.total_s
                        clock.reschedule(None if total_s is None else begun + total_s)
        finally:
            await stream.aclose()


async def run_load(
    endpoint: Endpoint,
    requests: Sequence[LoadRequest],
    arrival: Arrival,
    bounds: Bounds,
    deadline: Deadline,
    count_tokens: CountTokens | None = None,
) -> LoadResult:
    """Runs one load on an open endpoint; see ``Load``."""
    return await Load(endpoint, requests, arrival, bounds, deadline, count_tokens).run()


def check_answered(result: LoadResult, where: str) -> None:
    """Raises StepFailed when not one request was answered: there is nothing to measure."""
    if any(item.outcome == "answered" for item in result.requests):
        return
    first = result.requests[0].error if result.requests else "nothing was sent"
    raise StepFailed(
        f"None of {len(result.requests)} requests to {where} was answered; the first: {first}.",
        remedy="Send one such request by hand and see the server's log.",
    )
