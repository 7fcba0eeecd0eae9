"""An asyncio event loop in a thread of its own, for a Triton model that keeps many requests in flight."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any

MIN_CALLS_IN_FLIGHT = 64


class EventLoopThread:
    """Runs coroutines submitted from other threads; ``stop`` cancels what is left and ends thread and executor.

    Triton's async_exec waits in the loop's default executor, which Python caps at a handful of threads: this one has a
    thread for each of ``calls_in_flight``, 64 at least.
    """

    def __init__(self, calls_in_flight: int) -> None:
        threads = max(calls_in_flight, MIN_CALLS_IN_FLIGHT)
        self._executor = ThreadPoolExecutor(threads, thread_name_prefix="engine-call")
        self._loop = asyncio.new_event_loop()
        self._loop.set_default_executor(self._executor)
        self._thread = threading.Thread(target=self._run, name="event-loop", daemon=True)
        self._thread.start()

    def submit(self, coroutine: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(coroutine, self._loop)

    def stop(self) -> None:
        asyncio.run_coroutine_threadsafe(self._cancel_all(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._executor.shutdown(wait=False, cancel_futures=True)
        self._loop.close()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()

    async def _cancel_all(self) -> None:
        tasks = [task for task in asyncio.all_tasks(self._loop) if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
