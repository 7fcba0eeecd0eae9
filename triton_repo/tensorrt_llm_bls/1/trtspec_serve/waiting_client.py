"""Whether a client still waits for its answer. Asking Triton costs a message, 0.1 ms: it is asked beside the rounds."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import Future
from typing import Any

LOOK_S = 0.05
"""How often, while the answer grows; an engine call that is under way when the client leaves is the last one."""


class ClientGone(Exception):
    """The request was cancelled."""


class WaitingClient:
    """The client of one request of Triton.

    A request must not be asked once its last response is sent: Triton has freed it, and would crash.
    """

    def __init__(self, request: Any) -> None:
        self._request = request
        self._lock = threading.Lock()
        self._is_gone = self.is_answered = False

    def check(self) -> None:
        """ClientGone if the last look found nobody; costs nothing."""
        if self._is_gone:
            raise ClientGone

    def look(self) -> None:
        """Asks Triton; ClientGone if nobody waits."""
        self._ask()
        self.check()

    def end(self) -> None:
        """To be called before the last response is sent: from here on Triton is not asked."""
        with self._lock:
            self.is_answered = True

    async def watch(self, answer: Future[None]) -> None:
        """Looks now and then until the answer has ended, which it has to by itself; raises what it failed with."""
        ended = asyncio.wrap_future(answer)
        try:
            while not (await asyncio.wait({ended}, timeout=LOOK_S))[0]:
                self._ask()
            await ended
        finally:
            answer.cancel()

    def _ask(self) -> None:
        with self._lock:
            if not self.is_answered:
                self._is_gone = self._is_gone or bool(self._request.is_cancelled())
