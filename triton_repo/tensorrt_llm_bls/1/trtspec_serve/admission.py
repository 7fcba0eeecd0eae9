"""Who may begin: as many requests as there are places, and as many tokens as both engines' caches hold.

An engine whose cache is full gives up blocks of sequences that wait between two rounds, and their next round reads
everything anew. So a request enters only if all it may grow to fits beside those that run (engine_semantics, rule 3).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass

from .contract import QUEUE_FULL

POLL_S = 0.25
"""How often a request that waits is asked whether its client still does; asking costs a message to Triton."""


class ServerBusy(Exception):
    """More requests are waiting than the deployment holds."""


@dataclass(frozen=True)
class CacheTokens:
    """Tokens of KV cache in the two engines."""

    target: int
    draft: int


class Admission:
    """Lets requests in first come, first served: one that has to wait is overtaken by none, however small.

    ``room`` None counts requests alone. One that finds nobody gets in: whether it fits at all has been settled before
    (``cache_need``). For one event loop.
    """

    def __init__(
        self, places: int, queue_places: int, room: CacheTokens | None, on_change: Callable[[int, int], None]
    ) -> None:
        self._places, self._queue_places, self._room = places, queue_places, room
        self._on_change = on_change
        self._present = 0
        self._running: list[CacheTokens] = []
        self._waiting: deque[tuple[CacheTokens, asyncio.Future[None]]] = deque()

    @property
    def running(self) -> int:
        return len(self._running)

    @contextmanager
    def arrival(self) -> Iterator[None]:
        """Counts a request from its arrival to its end; ServerBusy if too many are here already."""
        if self._present >= self._places + self._queue_places:
            raise ServerBusy(f"{self._present} {QUEUE_FULL}; try again later.")
        self._change(1)
        try:
            yield
        finally:
            self._change(-1)

    @asynccontextmanager
    async def place(self, need: CacheTokens, check: Callable[[], None]) -> AsyncIterator[None]:
        """Waits for a place and room for ``need``; ``check`` is called meanwhile, and what it raises ends the wait."""
        ticket = (need, asyncio.get_running_loop().create_future())
        self._waiting.append(ticket)
        self._admit()
        try:
            while not ticket[1].done():
                await asyncio.wait({ticket[1]}, timeout=POLL_S)
                if not ticket[1].done():
                    check()
            yield
        finally:
            if ticket[1].done():
                self._running.remove(need)
            else:
                self._waiting.remove(ticket)
            self._admit()

    def _admit(self) -> None:
        while self._waiting and self._fits(self._waiting[0][0]):
            need, entered = self._waiting.popleft()
            self._running.append(need)
            entered.set_result(None)
        self._change(0)

    def _fits(self, need: CacheTokens) -> bool:
        if not self._running:
            return True
        if len(self._running) >= self._places:
            return False
        everyone = [need, *self._running]
        return self._room is None or (
            sum(each.target for each in everyone) <= self._room.target
            and sum(each.draft for each in everyone) <= self._room.draft
        )

    def _change(self, arrived: int) -> None:
        self._present += arrived
        self._on_change(len(self._running), self._present - len(self._running))
