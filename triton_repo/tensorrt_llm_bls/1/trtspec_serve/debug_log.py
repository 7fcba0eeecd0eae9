"""One request's rounds as JSON lines in Triton's log, for those who ask for it; never a word of its text.

Triton 24.10 writes a line as a JSON string itself, quotes and all.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from typing import Any

from .drafting import RoundOutcome

DEBUG_PARAMETER = "trtspec_debug"
"""Request parameter; in a generate call a key like any input."""

_numbers = itertools.count(1)


class DebugLog:
    """Lines of one request, which carry its number in this model, so that those of several can be told apart."""

    def __init__(self, write: Callable[[str], None], model: str) -> None:
        self._write = write
        self._about = {"model": model, "request": next(_numbers)}
        self._rounds = 0

    def begin(self, **figures: Any) -> None:
        self._line("begin", figures)

    def round(self, outcome: RoundOutcome) -> None:
        self._rounds += 1
        figures = {**outcome._asdict(), "plan": outcome.plan._asdict(), "round": self._rounds}
        figures.update(draft_s=round(outcome.draft_s, 6), target_s=round(outcome.target_s, 6))
        self._line("round", figures)

    def end(self, outcome: str) -> None:
        self._line("end", {"outcome": outcome, "rounds": self._rounds})

    def _line(self, event: str, figures: dict[str, Any]) -> None:
        self._write("trtspec " + json.dumps({"event": event, **self._about, **figures}))


def wants_debug(parameters: str) -> bool:
    """Whether the JSON text of a request's parameters asks for the log."""
    return str(json.loads(parameters or "{}").get(DEBUG_PARAMETER, "")).lower() in ("1", "true")
