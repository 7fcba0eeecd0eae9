"""Prometheus rules of a deployment: figures recorded under short names, and alerts with what to do about them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from trt_spec.deploy.targets import monitoring_queries as queries
from trt_spec.deploy.targets.monitoring_queries import Scope
from trt_spec.deploy.targets.yaml_text import render_yaml
from trt_spec.serve import metrics

ALL = Scope()
LONG = Scope(window="30m")
QUEUE_FULL = 'outcome="queue_full"'

# Where an alert begins is a choice: these fit nothing but obvious trouble, a service with an objective has its own.
MIN_ACCEPTANCE_RATE = 0.3
MAX_FAILED_SHARE = 0.05
MAX_FIRST_TEXT_S = 10

RECORDED = {
    "trtspec:draft_acceptance_rate:rate5m": queries.draft_acceptance_rate(ALL),
    "trtspec:mean_acceptance_length:rate5m": queries.mean_acceptance_length(ALL),
    "trtspec:output_tokens:rate5m": queries.output_tokens_per_second(ALL),
    "trtspec:failed_requests:share5m": queries.failed_share(ALL),
    "trtspec:request_seconds:p95_5m": queries.quantile(ALL, metrics.REQUEST_SECONDS, 0.95),
    "trtspec:first_text_seconds:p95_5m": queries.quantile(ALL, metrics.FIRST_TEXT_SECONDS, 0.95),
}


@dataclass(frozen=True)
class Alert:
    """``lasts`` is how long the expression must hold, as Prometheus writes durations."""

    name: str
    expression: str
    lasts: str
    severity: Literal["critical", "warning"]
    summary: str
    what_to_do: str


ALERTS = (
    Alert(
        "TrtspecAbsent",
        f"absent({metrics.RUNNING.name})",
        "5m",
        "critical",
        "No server exports the orchestrator's metrics.",
        "Look at the server's log and at Prometheus' list of scrape targets.",
    ),
    Alert(
        "TrtspecRequestsFail",
        f"trtspec:failed_requests:share5m > {MAX_FAILED_SHARE}",
        "5m",
        "critical",
        "{{ $value | humanizePercentage }} of the requests to {{ $labels.model }} fail.",
        "The log names the target engine's error; if a rank is gone, only a restart brings it back.",
    ),
    Alert(
        "TrtspecDraftFails",
        f"{ALL.rate(metrics.DRAFT_FAILURES.name)} > 0",
        "5m",
        "warning",
        "The draft engine fails; {{ $labels.model }} answers without speculation, right but slower.",
        "The log holds the first error of the draft engine.",
    ),
    Alert(
        "TrtspecQueueFull",
        f"{ALL.rate(metrics.REQUESTS.name, QUEUE_FULL)} > 0",
        "5m",
        "warning",
        "{{ $labels.model }} turns requests away.",
        "Add replicas, or raise serve.max_queue_size if clients can wait longer.",
    ),
    Alert(
        "TrtspecQueueLong",
        f"{ALL.now(metrics.WAITING.name)} > {ALL.now(metrics.RUNNING.name)}",
        "10m",
        "warning",
        "More requests wait for {{ $labels.model }} than are being answered.",
        "Add replicas, or engines with a larger limits.max_batch_size.",
    ),
    Alert(
        "TrtspecFirstTextSlow",
        f"trtspec:first_text_seconds:p95_5m > {MAX_FIRST_TEXT_S}",
        "10m",
        "warning",
        "One in twenty streams of {{ $labels.model }} waits {{ $value | humanizeDuration }} for its first words.",
        "See whether requests wait (trtspec_waiting_requests) or the engines are slow.",
    ),
    Alert(
        "TrtspecAcceptanceLow",
        f"{queries.draft_acceptance_rate(LONG)} < {MIN_ACCEPTANCE_RATE}",
        "30m",
        "warning",
        "Only {{ $value | humanizePercentage }} of the tokens drafted for {{ $labels.model }} are accepted.",
        "Speculation may cost more than it gives: see `trtspec verify`, draft fewer tokens, or use another draft.",
    ),
)


def render_rules() -> str:
    """A rule file for Prometheus."""
    groups = [
        {
            "name": "trtspec-figures",
            "rules": [{"record": name, "expr": expression} for name, expression in RECORDED.items()],
        },
        {"name": "trtspec-alerts", "rules": [_plan_rule(alert) for alert in ALERTS]},
    ]
    return render_yaml({"groups": groups}, "Prometheus rules of a trtspec deployment")


def _plan_rule(alert: Alert) -> dict[str, Any]:
    return {
        "alert": alert.name,
        "expr": alert.expression,
        "for": alert.lasts,
        "labels": {"severity": alert.severity},
        "annotations": {"summary": alert.summary, "description": alert.what_to_do},
    }
