"""The orchestrator's figures on Triton's metrics port: what was drafted and accepted, and how requests ended.

Triton's own request metrics do not see the orchestrator's work: it takes every request at once and answers behind
Triton's back, so that ``nv_inference_pending_request_count`` reads 0 however many wait, and
``nv_inference_request_duration_us`` the milliseconds that taking them took. Load and latency are measured here.

Counters move once a second while a request runs and once at its end, never with a token; an operation costs about 7 us
(Triton 2.51, measured). A Triton without one of these metrics serves on without it: no request fails over a figure.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

from .drafting import Source
from .rounds import RoundCounts
from .server_log import log_warning

MetricKind = Literal["COUNTER", "GAUGE", "HISTOGRAM"]
Outcome = Literal["answered", "invalid", "queue_full", "cancelled", "engine_failed", "failed", "stopping"]

FLUSH_S = 1.0
"""How often a running request's figures are added to the counters."""

LENGTH_BUCKETS = (1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 13, 17, 25, 33, 65)
SECONDS_BUCKETS = (0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 200)


@dataclass(frozen=True)
class MetricInfo:
    """One metric; all carry the labels ``model`` and ``version``, and ``outcome`` where ``by_outcome`` says so."""

    name: str
    kind: MetricKind
    what: str
    by_outcome: bool = False


REQUESTS = MetricInfo(
    "trtspec_requests_total",
    "COUNTER",
    "Requests that ended, by outcome; queue_full are those turned away because too many waited already.",
    by_outcome=True,
)
RUNNING = MetricInfo("trtspec_running_requests", "GAUGE", "Requests that are being answered now.")
WAITING = MetricInfo("trtspec_waiting_requests", "GAUGE", "Requests that wait for one of the places.")
OUTPUT_TOKENS = MetricInfo("trtspec_output_tokens_total", "COUNTER", "Tokens of answers.")
ROUNDS = MetricInfo("trtspec_draft_rounds_total", "COUNTER", "Rounds of speculation: one call of the target each.")
DRAFT_TOKENS = MetricInfo("trtspec_draft_tokens_total", "COUNTER", "Tokens drafted.")
ACCEPTED_TOKENS = MetricInfo("trtspec_accepted_draft_tokens_total", "COUNTER", "Drafted tokens that were accepted.")
ACCEPTANCE_LENGTH = MetricInfo(
    "trtspec_acceptance_length",
    "HISTOGRAM",
    "Accepted draft tokens of a round plus one, the token of the target's own; Triton 24.10 or newer.",
)
NGRAM_TOKENS = MetricInfo(
    "trtspec_ngram_draft_tokens_total", "COUNTER", "Of the tokens drafted, those that n-gram lookup proposed."
)
ACCEPTED_NGRAM_TOKENS = MetricInfo(
    "trtspec_accepted_ngram_draft_tokens_total", "COUNTER", "Of the tokens that n-gram lookup proposed, those accepted."
)
DRAFT_LENGTH = MetricInfo(
    "trtspec_draft_length", "HISTOGRAM", "Tokens drafted in a round, 0 where none could be; Triton 24.10 or newer."
)
DRAFT_FAILURES = MetricInfo(
    "trtspec_draft_failures_total", "COUNTER", "Requests that the draft engine failed, and the target finished alone."
)

REQUEST_SECONDS = MetricInfo(
    "trtspec_request_seconds", "HISTOGRAM", "Seconds from arrival to the last word, of answered requests."
)
FIRST_TEXT_SECONDS = MetricInfo(
    "trtspec_first_text_seconds", "HISTOGRAM", "Seconds from arrival to the first words of a streamed answer."
)

METRICS = (
    REQUESTS,
    RUNNING,
    WAITING,
    OUTPUT_TOKENS,
    ROUNDS,
    DRAFT_TOKENS,
    ACCEPTED_TOKENS,
    ACCEPTANCE_LENGTH,
    NGRAM_TOKENS,
    ACCEPTED_NGRAM_TOKENS,
    DRAFT_LENGTH,
    DRAFT_FAILURES,
    REQUEST_SECONDS,
    FIRST_TEXT_SECONDS,
)


class OrchestratorMetrics:
    """The metrics of one model; ``triton`` is the Python backend's utility module.

    Any thread may call, but only one at a time gets through: a metric that two threads change together takes the server
    down (Triton 2.51, seen). Two models of a server may carry the same names: Triton keeps one family of each and tells
    them apart by label.
    """

    def __init__(self, triton: Any, *, model: str, version: str, max_draft_len: int) -> None:
        self._triton = triton
        self._labels = {"model": model, "version": version}
        self._lock = threading.Lock()
        self._families: list[Any] = []  # a family that is collected takes its metrics with it
        self._metrics: dict[tuple[str, str], Any] = {}
        for info in METRICS:
            self._create(info, max_draft_len)

    def count_draft_failure(self) -> None:
        self._apply(DRAFT_FAILURES, "increment", 1)

    def set_load(self, *, running: int, waiting: int) -> None:
        self._apply(RUNNING, "set", running)
        self._apply(WAITING, "set", waiting)

    def follow(self) -> RequestFigures:
        """The figures of a request that has just arrived."""
        return RequestFigures(self)

    def count_end(self, outcome: Outcome, seconds: float) -> None:
        """``seconds`` counts from the request's arrival."""
        self._apply(REQUESTS, "increment", 1, outcome)
        if outcome == "answered":
            self._apply(REQUEST_SECONDS, "observe", seconds)

    def count_first_text(self, seconds: float) -> None:
        self._apply(FIRST_TEXT_SECONDS, "observe", seconds)

    def count_work(
        self, drafted: Sequence[int], accepted: Sequence[int], sources: Sequence[Source], output_tokens: int
    ) -> None:
        """Add rounds, an entry each in ``drafted``, ``accepted`` and ``sources``, and new tokens of an answer."""
        sums = {
            OUTPUT_TOKENS: output_tokens,
            ROUNDS: len(drafted),
            DRAFT_TOKENS: sum(drafted),
            ACCEPTED_TOKENS: sum(accepted),
            NGRAM_TOKENS: sum(count for count, source in zip(drafted, sources, strict=True) if source == "ngram"),
            ACCEPTED_NGRAM_TOKENS: sum(
                count for count, source in zip(accepted, sources, strict=True) if source == "ngram"
            ),
        }
        for info, value in sums.items():
            if value:
                self._apply(info, "increment", value)
        for count in accepted:
            self._apply(ACCEPTANCE_LENGTH, "observe", count + 1)
        for count in drafted:
            self._apply(DRAFT_LENGTH, "observe", count)

    def close(self) -> None:
        """Take the metrics off the port; what is counted afterwards is dropped."""
        with self._lock:
            self._metrics.clear()
            self._families.clear()

    def _create(self, info: MetricInfo, max_draft_len: int) -> None:
        try:
            kind = getattr(self._triton.MetricFamily, info.kind)
            family = self._triton.MetricFamily(name=info.name, description=info.what, kind=kind)
            options = {"buckets": _bucket_bounds(info, max_draft_len)} if info.kind == "HISTOGRAM" else {}
            # A series for every outcome from the start, so that its first event is seen as an increase.
            for outcome in get_args(Outcome) if info.by_outcome else ("",):
                labels = self._labels | ({"outcome": outcome} if outcome else {})
                self._metrics[info.name, outcome] = family.Metric(labels=labels, **options)
            self._families.append(family)
        except Exception as error:  # noqa: BLE001 - whatever this Triton does not have
            self._log(f"no metric {info.name}: {error}")

    def _apply(self, info: MetricInfo, operation: str, value: float, outcome: str = "") -> None:
        metric = self._metrics.get((info.name, outcome))
        if metric is None:
            return
        try:
            with self._lock:
                getattr(metric, operation)(value)
        except Exception as error:  # noqa: BLE001 - no request fails over a figure
            self._metrics.pop((info.name, outcome), None)
            self._log(f"metric {info.name} is given up: {error}")

    def _log(self, message: str) -> None:
        log_warning(self._triton, message)


class RequestFigures:
    """One request from arrival to end; what is new of it is counted now and then while it runs, the rest at its end.

    ``counts`` is for the request's loop to fill in.
    """

    def __init__(self, metrics: OrchestratorMetrics) -> None:
        self.counts = RoundCounts()
        self._metrics = metrics
        self._arrived_at = self._flushed_at = time.monotonic()
        self._rounds = self._tokens = 0  # what the counters hold already
        self._output_tokens = 0
        self._has_text = self._has_ended = False

    def show_text(self) -> None:
        """Called whenever text has been sent to a client that streams."""
        if not self._has_text:
            self._has_text = True
            self._metrics.count_first_text(time.monotonic() - self._arrived_at)

    def tick(self, output_tokens: int) -> None:
        """Called after every round, with the length of the answer so far."""
        self._output_tokens = output_tokens
        if time.monotonic() - self._flushed_at >= FLUSH_S:
            self._flush()

    def end(self, outcome: Outcome) -> bool:
        """Whether this was the first end, which alone counts."""
        if self._has_ended:
            return False
        self._has_ended = True
        self._flush()
        self._metrics.count_end(outcome, time.monotonic() - self._arrived_at)
        return True

    def _flush(self) -> None:
        drafted, accepted = self.counts.drafted[self._rounds :], self.counts.accepted[self._rounds :]
        sources = self.counts.sources[self._rounds :]
        self._metrics.count_work(drafted, accepted, sources, self._output_tokens - self._tokens)
        self._rounds += len(drafted)
        self._tokens = self._output_tokens
        self._flushed_at = time.monotonic()


def _bucket_bounds(info: MetricInfo, max_draft_len: int) -> list[float]:
    """Upper bounds; those of lengths end at the longest round, and tell each length apart while rounds are short."""
    if info is DRAFT_LENGTH:
        return [0.0, *_length_bounds(max(1, max_draft_len))]
    return _length_bounds(max_draft_len + 1) if info is ACCEPTANCE_LENGTH else list(SECONDS_BUCKETS)


def _length_bounds(longest: int) -> list[float]:
    return [float(bound) for bound in LENGTH_BUCKETS if bound < longest] + [float(longest)]
