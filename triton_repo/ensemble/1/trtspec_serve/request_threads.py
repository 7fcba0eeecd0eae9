"""Runs each request's coroutine in a thread of its own, so that an engine call blocks that thread and nothing else.

Awaiting calls in an event loop costs two thread switches a call, 0.3 ms on 2 cores, and a round of speculation has two
calls. Between calls the coroutines of one model take turns under one lock, as they would in an event loop: what they
alone share needs no other.
"""

from __future__ import annotations

import math
import threading
import time
import types
from collections.abc import Callable, Coroutine, Generator
from concurrent.futures import Future
from typing import Any, NamedTuple, TypeVar

T = TypeVar("T")

LOOK_S = 1.0
"""How often calls are looked at that may never be answered."""


class Blocking(NamedTuple):
    """What a coroutine asks its thread for: the result of ``call``, or what ``late`` makes after about ``limit_s``."""

    call: Callable[[], Any]
    limit_s: float
    late: Callable[[], Exception]


@types.coroutine
def blocking(
    call: Callable[[], T], limit_s: float = math.inf, late: Callable[[], Exception] = TimeoutError
) -> Generator[Blocking, Any, T]:
    """Awaits what ``call`` returns or raises, outside the lock; raises what ``late`` makes behind ``limit_s``."""
    result: T = yield Blocking(call, limit_s, late)
    return result


class RequestThreads:
    """Starts coroutines that await nothing but ``blocking``, each in a thread of its own."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._runs: set[_Run] = set()
        self._stopping = threading.Event()
        threading.Thread(target=self._look, name="late-calls", daemon=True).start()

    def start(self, coroutine: Coroutine[Blocking, Any, T]) -> Future[T]:
        """Its result; cancelling the future closes the coroutine, and what its thread waits for is forgotten.

        RuntimeError where no thread can be started any more.
        """
        run = _Run(coroutine, self._lock)
        run.result.add_done_callback(lambda result: self._forget(run, result))
        self._runs.add(run)
        try:
            run.begin()
        except RuntimeError:
            run.result.cancel()
            raise
        if self._stopping.is_set():
            run.result.cancel()
        return run.result

    def stop(self) -> None:
        """Closes what is left."""
        self._stopping.set()
        for run in list(self._runs):
            run.result.cancel()

    def _forget(self, run: _Run, result: Future[Any]) -> None:
        self._runs.discard(run)
        if result.cancelled():
            run.close()

    def _look(self) -> None:
        while not self._stopping.wait(LOOK_S):
            now = time.monotonic()
            for run in list(self._runs):
                run.give_up_if_late(now)


class _Run:
    """One coroutine, and the thread whose turn it is to go on with it."""

    def __init__(self, coroutine: Coroutine[Blocking, Any, Any], lock: threading.Lock) -> None:
        self.result: Future[Any] = Future()
        self._coroutine = coroutine
        self._lock = lock
        self._turn = 0  # a thread that began at an earlier one has been given up
        self._late_at = math.inf
        self._late: Callable[[], Exception] = TimeoutError

    def begin(self, turn: int = 0, error: BaseException | None = None) -> None:
        # A daemon: one that waits for a dead engine must not keep the process.
        threading.Thread(target=self._go_on, args=(turn, error), name="request", daemon=True).start()

    def give_up_if_late(self, now: float) -> None:
        """Takes the coroutine from the thread whose call is late, and lets another go on with an error."""
        with self._lock:
            if now < self._late_at:
                return
            self._turn += 1
            turn, self._late_at = self._turn, math.inf
        try:
            self.begin(turn, self._late())
        except RuntimeError:  # no thread can be started any more: the request ends, the others are still looked at
            self.result.cancel()

    def close(self) -> None:
        """For a coroutine that is to go no further; it ends where it waits."""
        with self._lock:
            self._turn += 1
            self._late_at = math.inf
            self._coroutine.close()

    def _go_on(self, turn: int, error: BaseException | None) -> None:
        value = None
        while (wanted := self._step(turn, value, error)) is not None:
            value, error = None, None
            try:
                value = wanted.call()
            except Exception as failure:  # noqa: BLE001 - the coroutine's to handle
                error = failure

    def _step(self, turn: int, value: Any, error: BaseException | None) -> Blocking | None:
        """What the coroutine waits for next; None if it has ended, or is another thread's."""
        with self._lock:
            if turn != self._turn:
                return None
            self._late_at = math.inf
            try:
                wanted = self._coroutine.send(value) if error is None else self._coroutine.throw(error)
            except StopIteration as end:
                outcome, failure = end.value, None
            except BaseException as raised:  # noqa: BLE001 - whoever waits for the result gets it
                outcome, failure = None, raised
            else:
                self._late_at, self._late = time.monotonic() + wanted.limit_s, wanted.late
                return wanted
            self._turn += 1
        # Outside the lock, because a callback may take it.
        if self.result.set_running_or_notify_cancel():
            if failure is None:
                self.result.set_result(outcome)
            else:
                self.result.set_exception(failure)
        return None
