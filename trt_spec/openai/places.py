"""How many requests the endpoint has with Triton at once: no more than the orchestrator takes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from trt_spec.openai.api_error import bad_request, busy


class Places:
    """Counts them, each choice as a request of its own. For one event loop.

    The orchestrator keeps the same bound, for all its clients together, and notices a little later who has left. It is
    kept here as well because Triton 24.10 corrupts its memory when hundreds of streams are turned away and cancelled
    in the same moment (measured).
    """

    def __init__(self) -> None:
        self.taken = 0

    @contextmanager
    def take(self, wanted: int, bound: int) -> Iterator[None]:
        """Holds ``wanted`` places, all or none. ApiError where they are not free, or more than there are."""
        if wanted > bound:
            raise bad_request(f"{wanted} choices are asked for, this deployment takes {bound} requests at once.", "n")
        if self.taken + wanted > bound:
            raise busy(f"{self.taken} requests are running or waiting, and this deployment takes {bound} at once.")
        self.taken += wanted
        try:
            yield
        finally:
            self.taken -= wanted
