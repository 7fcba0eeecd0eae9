"""How long one request may take, and which of its limits ran out."""

from __future__ import annotations

from dataclasses import dataclass

# A request may take this long, plus the time its tokens need: a large model with a full queue is slow, not stuck.
FLOOR_S = 60.0
SLOWEST_TOKENS_PER_S = 1.0
# Room over the measured speed for queues and for prompts that are longer than the measured ones.
_SAFETY_FACTOR = 5.0


@dataclass(frozen=True)
class Deadline:
    """Seconds from sending to the first token and to the end; None waits for ever."""

    first_token_s: float | None = None
    total_s: float | None = None

    def limit(self, *, started: bool) -> tuple[str, float | None]:
        """Which limit comes next, and when: ``started`` once a token has come."""
        first, total = self.first_token_s, self.total_s
        if not started and first is not None and (total is None or first <= total):
            return "first token", first
        return "total", total

    def explain(self, *, started: bool) -> str:
        """What to say when the next limit ran out."""
        stage, seconds = self.limit(started=started)
        came = "the stream began but did not end" if started else f"no response after {seconds:g} s"
        return f"{stage} timeout {seconds:g} s: {came}"


def default_total_s(max_tokens: int, tokens_per_s: float | None = None) -> float:
    """Seconds that a request of ``max_tokens`` may take, by the measured speed of one user where that is known."""
    if not tokens_per_s:
        return FLOOR_S + max_tokens / SLOWEST_TOKENS_PER_S
    return max(FLOOR_S, _SAFETY_FACTOR * max_tokens / tokens_per_s)
