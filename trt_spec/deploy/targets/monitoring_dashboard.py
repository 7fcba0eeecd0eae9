"""The Grafana dashboard of a deployment, as Grafana's JSON model."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from trt_spec.deploy.targets import monitoring_queries as queries
from trt_spec.deploy.targets.monitoring_queries import Scope
from trt_spec.serve import metrics
from trt_spec.serve.contract import DRAFT_MODEL, TARGET_MODEL

UID = "trtspec"
SCHEMA_VERSION = 39  # Grafana 10 and newer read it, migrating what is older than their own
DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}
COLUMNS = 24  # width of Grafana's grid
PANEL_HEIGHT = 8

PanelType = Literal["timeseries", "stat", "heatmap"]

_WINDOW = "$__rate_interval"
SERVED = Scope(('instance=~"$instance"', 'model=~"$model"'), _WINDOW)
ENGINES = Scope(('instance=~"$instance"', f'model=~"{TARGET_MODEL}|{DRAFT_MODEL}"'), _WINDOW)
SERVERS = Scope(('instance=~"$instance"',), _WINDOW)


@dataclass(frozen=True)
class Panel:
    """One panel; ``queries`` by legend, ``unit`` as Grafana names units. ``columns`` of 24 is the width."""

    title: str
    what: str
    queries: Mapping[str, str]
    unit: str = "short"
    type: PanelType = "timeseries"
    columns: int = 8
    options: Mapping[str, Any] = field(default_factory=dict)


def _requests_by_outcome() -> str:
    return SERVED.rate(metrics.REQUESTS.name, by="outcome")


def _quantiles(histogram: metrics.MetricInfo) -> dict[str, str]:
    shares = {"half": 0.5, "95 %": 0.95, "99 %": 0.99}
    return {f"{{{{model}}}} {name}": queries.quantile(SERVED, histogram, share) for name, share in shares.items()}


ROWS: Mapping[str, tuple[Panel, ...]] = {
    "Speculation": (
        Panel(
            "Draft acceptance rate",
            "Accepted tokens of those drafted. It sinks as more are drafted in a round.",
            {"{{instance}} {{model}}": queries.draft_acceptance_rate(SERVED)},
            "percentunit",
        ),
        Panel(
            "Mean acceptance length",
            "Tokens that a round of speculation yields: accepted ones plus the target's own.",
            {"{{instance}} {{model}}": queries.mean_acceptance_length(SERVED)},
        ),
        Panel(
            "Acceptance length, rounds per second",
            "How many rounds yield how many tokens.",
            {"{{le}}": SERVED.rate(f"{metrics.ACCEPTANCE_LENGTH.name}_bucket", by="le")},
            type="heatmap",
            options={"calculate": False, "yAxis": {"unit": "short"}},
        ),
        Panel(
            "Draft length, rounds per second",
            "How many rounds draft how many tokens; an adaptive length moves with load and acceptance.",
            {"{{le}}": SERVED.rate(f"{metrics.DRAFT_LENGTH.name}_bucket", by="le")},
            type="heatmap",
            options={"calculate": False, "yAxis": {"unit": "short"}},
        ),
        Panel(
            "Tokens per second",
            "Answers, and what was drafted and accepted for them; of n-gram look-up apart.",
            {
                "answers": SERVED.rate(metrics.OUTPUT_TOKENS.name, by="instance"),
                "drafted": SERVED.rate(metrics.DRAFT_TOKENS.name, by="instance"),
                "accepted": SERVED.rate(metrics.ACCEPTED_TOKENS.name, by="instance"),
                "drafted by look-up": SERVED.rate(metrics.NGRAM_TOKENS.name, by="instance"),
                "accepted of look-up": SERVED.rate(metrics.ACCEPTED_NGRAM_TOKENS.name, by="instance"),
            },
        ),
        Panel(
            "Requests without their draft, per second",
            "The draft engine failed and the target went on alone.",
            {"{{instance}} {{model}}": SERVED.rate(metrics.DRAFT_FAILURES.name)},
            "reqps",
        ),
    ),
    "Requests": (
        Panel("Ended, by outcome", "Per second.", {"{{outcome}}": _requests_by_outcome()}, "reqps"),
        Panel(
            "Running and waiting",
            "Triton's own queue figures do not see these.",
            {
                "{{model}} running": SERVED.now(metrics.RUNNING.name),
                "{{model}} waiting": SERVED.now(metrics.WAITING.name),
            },
        ),
        Panel(
            "Failed share",
            "Requests that failed through no fault of their clients.",
            {"{{instance}} {{model}}": queries.failed_share(SERVED)},
            "percentunit",
        ),
        Panel("Time of a whole answer", "Waiting included.", _quantiles(metrics.REQUEST_SECONDS), "s", columns=12),
        Panel(
            "Time to the first words", "Of streamed answers.", _quantiles(metrics.FIRST_TEXT_SECONDS), "s", columns=12
        ),
    ),
    "Engines": (
        Panel("Calls per second", "Two a round.", {"{{model}}": ENGINES.rate("nv_inference_request_success")}, "reqps"),
        Panel("Mean time of a call", "By Triton's count.", {"{{model}}": queries.engine_call_seconds(ENGINES)}, "s"),
        Panel(
            "KV cache blocks in use",
            "Of all blocks, as the C++ backend reports it.",
            {"{{model}}": ENGINES.now("nv_trt_llm_kv_cache_block_metrics", 'kv_cache_block_type="fraction"')},
            "percentunit",
        ),
        Panel(
            "Requests in the C++ backend",
            "Active and waiting, as it reports them.",
            {
                "{{model}} {{request_type}}": ENGINES.now(
                    "nv_trt_llm_request_metrics",
                    'request_type=~"active|waiting"',
                    by="instance, model, request_type",
                )
            },
        ),
        Panel("GPU utilisation", "", {"{{gpu_uuid}}": SERVERS.series("nv_gpu_utilization")}, "percentunit"),
        Panel("GPU memory", "", {"{{gpu_uuid}}": SERVERS.series("nv_gpu_memory_used_bytes")}, "bytes"),
    ),
}


def render_dashboard() -> str:
    """The dashboard as JSON, for Grafana's import or provisioning; it asks for its data source by a variable."""
    dashboard = {
        "uid": UID,
        "title": "trtspec: speculative decoding on Triton",
        "tags": ["trtspec", "triton", "tensorrt-llm"],
        "schemaVersion": SCHEMA_VERSION,
        "editable": True,
        "refresh": "15s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {"list": _plan_variables()},
        "panels": _plan_panels(),
    }
    return json.dumps(dashboard, indent=2, ensure_ascii=False) + "\n"


def _plan_variables() -> list[dict[str, Any]]:
    source = {"name": "datasource", "label": "Prometheus", "type": "datasource", "query": "prometheus"}
    choices = [
        {
            "name": label,
            "label": title,
            "type": "query",
            "datasource": DATASOURCE,
            "query": {"query": f"label_values({metrics.RUNNING.name}, {label})", "refId": label},
            "refresh": 2,  # whenever the time range changes: a new server shows up
            "multi": True,
            "includeAll": True,
            "allValue": ".+",
            "current": {"text": ["All"], "value": ["$__all"]},
        }
        for label, title in (("instance", "Server"), ("model", "Model"))
    ]
    return [source, *choices]


def _plan_panels() -> list[dict[str, Any]]:
    """Rows of panels, filled from the left; ids count from 1 so that links to a panel stay."""
    panels: list[dict[str, Any]] = []
    y = 0
    for title, row in ROWS.items():
        panels.append(_place({"type": "row", "title": title, "collapsed": False, "panels": []}, 0, y, COLUMNS, 1))
        y, x = y + 1, 0
        for panel in row:
            if x + panel.columns > COLUMNS:
                y, x = y + PANEL_HEIGHT, 0
            panels.append(_place(_plan_panel(panel), x, y, panel.columns, PANEL_HEIGHT))
            x += panel.columns
        y += PANEL_HEIGHT
    return [{"id": number, **panel} for number, panel in enumerate(panels, 1)]


def _place(panel: dict[str, Any], x: int, y: int, width: int, height: int) -> dict[str, Any]:
    return {**panel, "gridPos": {"x": x, "y": y, "w": width, "h": height}}


def _plan_panel(panel: Panel) -> dict[str, Any]:
    return {
        "type": panel.type,
        "title": panel.title,
        "description": panel.what,
        "datasource": DATASOURCE,
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "options": dict(panel.options),
        "targets": [
            {
                "refId": chr(ord("A") + number),
                "datasource": DATASOURCE,
                "expr": query,
                "legendFormat": legend,
                "format": "heatmap" if panel.type == "heatmap" else "time_series",
            }
            for number, (legend, query) in enumerate(panel.queries.items())
        ],
    }
