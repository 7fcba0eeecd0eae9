"""Monitoring of a deployment: Prometheus rules, a Grafana dashboard, and how both find each other and the server.

``python -m trt_spec.deploy.targets.monitoring`` says whether deploy/monitoring of a checkout is current, ``--write``
renews it.
"""

from __future__ import annotations

from pathlib import Path

from trt_spec.deploy.targets.monitoring_dashboard import render_dashboard
from trt_spec.deploy.targets.monitoring_rules import render_rules
from trt_spec.deploy.targets.yaml_text import render_yaml
from trt_spec.util.generated import GeneratedFolder, run_generator

MONITORING = GeneratedFolder(Path(__file__).parents[3] / "deploy" / "monitoring", by_hand=())
RULES_FILE, DASHBOARD_FILE = "rules.yaml", "dashboard.json"
SCRAPE_INTERVAL = "15s"
JOB = "triton"


def render_monitoring() -> dict[str, bytes]:
    """Rules and dashboard, which no deployment changes, by file name."""
    return {RULES_FILE: render_rules().encode(), DASHBOARD_FILE: render_dashboard().encode()}


def render_prometheus(server: str, deployment: str, rules: str) -> str:
    """Prometheus' configuration: scrape ``server`` (host:port), labelled ``deployment``; ``rules`` is a path."""
    labels = {"deployment": deployment}
    job = {"job_name": JOB, "static_configs": [{"targets": [server], "labels": labels}]}
    interval = {"scrape_interval": SCRAPE_INTERVAL, "evaluation_interval": SCRAPE_INTERVAL}
    document = {"global": interval, "rule_files": [rules], "scrape_configs": [job]}
    return render_yaml(document, "Written by trtspec deploy: what Prometheus reads")


def render_grafana_source(url: str) -> str:
    """Provisioning of Grafana's data source, the Prometheus at ``url``."""
    source = {"name": "Prometheus", "type": "prometheus", "access": "proxy", "url": url, "isDefault": True}
    return render_yaml({"apiVersion": 1, "datasources": [source]}, "Written by trtspec deploy: Grafana's data source")


def render_grafana_provider(folder: str) -> str:
    """Provisioning of the dashboards that lie in ``folder``."""
    provider = {"name": "trtspec", "type": "file", "options": {"path": folder}}
    return render_yaml({"apiVersion": 1, "providers": [provider]}, "Written by trtspec deploy: Grafana's dashboards")


if __name__ == "__main__":
    run_generator("trt_spec.deploy.targets.monitoring", MONITORING, render_monitoring())
