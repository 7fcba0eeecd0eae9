"""What load runs and comparisons return: frozen dataclasses of plain values, stable names, JSON by ``to_json``.

Times are seconds; names say so. None means "could not be known", never zero.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from trt_spec.verify.acceptance import Acceptance

Outcome = Literal["answered", "failed", "timed_out"]
TokenSource = Literal["ids", "usage", "tokenizer", "messages"]
"""Who counted the tokens of an answer; ``messages`` takes each message for one token and is a guess."""


@dataclass(frozen=True)
class RequestResult:
    """One request. Times count from its sending, ``sent_s`` from the beginning of the load."""

    id: str
    kind: str
    outcome: Outcome
    error: str
    sent_s: float
    delay_s: float
    """How long after its due time it was sent; 0 in a closed loop."""
    latency_s: float
    """Until the stream ended; of a request that timed out, how long it was waited for."""
    message_s: tuple[float, ...]
    """Arrival of every message with text or tokens."""
    message_tokens: tuple[int, ...]
    """Tokens in each of them, (1, 1, ...) where the endpoint does not tell."""
    tokens: int
    token_source: TokenSource
    text: str
    output_ids: tuple[int, ...] | None = None
    rounds_drafted: tuple[int, ...] = ()
    rounds_accepted: tuple[int, ...] = ()
    drafted_tokens: int | None = None
    """None where the endpoint tells nothing of drafts."""
    accepted_tokens: int | None = None


@dataclass(frozen=True)
class LoadResult:
    """All requests of one load run, in the order of sending, and the seconds it took."""

    seconds: float
    requests: tuple[RequestResult, ...]
    interrupted: bool = False


@dataclass(frozen=True)
class Distribution:
    """Mean and percentiles (nearest rank) of ``count`` values."""

    count: int
    mean: float
    p50: float
    p90: float
    p99: float
    minimum: float
    maximum: float


@dataclass(frozen=True)
class LoadSummary:
    """Figures of one load run.

    ``latency_s`` and ``time_to_first_token_s`` hold timed-out requests with the time they were waited for, which is a
    lower bound: leaving them out would make a slow system look fast. Requests that failed otherwise are in ``failed``
    and ``errors`` and in no average; ``answered_fraction`` tells how much the averages leave out.
    """

    requests: int
    answered: int
    failed: int
    timed_out: int
    answered_fraction: float | None
    errors: dict[str, int]
    seconds: float
    tokens: int
    token_source: TokenSource | None
    tokens_per_s: float | None
    requests_per_s: float | None
    tokens_per_s_per_user: Distribution | None
    time_to_first_token_s: Distribution | None
    inter_token_latency_s: Distribution | None
    """Of each answer: (last message - first message) / tokens that came after the first message."""
    inter_message_s: Distribution | None
    """Gaps between successive messages; a round of speculation is one message."""
    latency_s: Distribution | None
    send_delay_s: Distribution | None
    """Open loop: a client that falls behind its schedule shows here."""
    acceptance: Acceptance | None
    interrupted: bool = False


@dataclass(frozen=True)
class Ratio:
    """B / A with a bootstrap confidence interval; ``significant`` when 1 lies outside of it."""

    value: float
    low: float
    high: float
    confidence: float
    samples: int
    significant: bool


@dataclass(frozen=True)
class Comparison:
    """Two systems under the same load, interleaved A B A B. Ratios are B / A by figure."""

    name_a: str
    name_b: str
    blocks: int
    seed: int
    a: LoadSummary
    b: LoadSummary
    ratios: dict[str, Ratio]


@dataclass(frozen=True)
class MachineLoad:
    """Processor and memory of the machine between two readings; None where nothing could be read."""

    cpu_fraction: float | None
    memory_used_bytes: int | None
    memory_total_bytes: int | None
    gpu_utilization_percent: tuple[int, ...] = ()
    gpu_memory_used_bytes: tuple[int, ...] = ()
    gpu_clock_mhz: tuple[int, ...] = ()


@dataclass(frozen=True)
class MetricsDelta:
    """Increase of a server's own counters over a run, by metric and label set; ``missing`` says why there is none."""

    counters: dict[str, float] = field(default_factory=dict)
    gauges: dict[str, float] = field(default_factory=dict)
    missing: str = ""


def to_json(result: Any) -> str:
    """Any result as one JSON document. Raises ValueError for NaN or infinity, which JSON does not know."""
    return json.dumps(asdict(result), ensure_ascii=False, indent=2, allow_nan=False) + "\n"
