"""When requests are sent: as fast as users finish (closed loop), or by a clock (open loop)."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from trt_spec.errors import SpecError

# An open loop that the server cannot keep up with must not pile up streams without end.
DEFAULT_MAX_IN_FLIGHT = 1024


@dataclass(frozen=True)
class ClosedLoop:
    """``concurrency`` users, each of whom sends its next request when the last one is answered."""

    concurrency: int = 1

    def __post_init__(self) -> None:
        if self.concurrency < 1:
            raise SpecError(f"Concurrency {self.concurrency} sends nothing.", remedy="Give 1 or more.")


@dataclass(frozen=True)
class Poisson:
    """Requests at random times, ``rate_per_s`` on average, whether or not the last ones are answered."""

    rate_per_s: float
    seed: int = 0
    max_in_flight: int = DEFAULT_MAX_IN_FLIGHT

    def __post_init__(self) -> None:
        if not 0 < self.rate_per_s < float("inf"):
            raise SpecError(f"A rate of {self.rate_per_s:g} requests/s sends nothing.", remedy="Give more than 0.")

    def due_s(self) -> Iterator[float]:
        """Seconds from the start at which each request is due; the same for the same seed."""
        draw = random.Random(self.seed)
        return itertools.accumulate(draw.expovariate(self.rate_per_s) for _ in itertools.count())


@dataclass(frozen=True)
class Replay:
    """Requests at recorded times, in seconds from the first one."""

    timestamps_s: Sequence[float]
    max_in_flight: int = DEFAULT_MAX_IN_FLIGHT

    def __post_init__(self) -> None:
        steps = itertools.pairwise(self.timestamps_s)
        if not self.timestamps_s or any(later < earlier for earlier, later in steps):
            raise SpecError("Timestamps must be given and must not fall.", remedy="Sort the requests by time.")

    def due_s(self) -> Iterator[float]:
        """Seconds from the start at which each request is due."""
        return (stamp - self.timestamps_s[0] for stamp in self.timestamps_s)


Arrival = ClosedLoop | Poisson | Replay


@dataclass(frozen=True)
class Bounds:
    """When a load stops sending: after so many requests and after so many seconds, whichever is first.

    Requests in flight then finish, each within its own deadline.
    """

    max_requests: int
    max_s: float = float("inf")
