"""Monitoring of a deployment: Prometheus rules, a Grafana dashboard, and how both find each other and the server.

``python -m trt_spec.deploy.targets.monitoring`` says whether deploy/monitoring of a checkout is current, ``--write``
renews it.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from trt_spec.deploy.targets.monitoring_dashboard import render_dashboard
from trt_spec.deploy.targets.monitoring_rules import render_rules
from trt_spec.deploy.targets.yaml_text import render_yaml

MONITORING_DIR = Path(__file__).parents[3] / "deploy" / "monitoring"
RULES_FILE, DASHBOARD_FILE = "rules.yaml", "dashboard.json"
SCRAPE_INTERVAL = "15s"
JOB = "triton"


def render_monitoring() -> dict[str, str]:
    """Rules and dashboard, which no deployment changes: file name -> text."""
    return {RULES_FILE: render_rules(), DASHBOARD_FILE: render_dashboard()}


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


def main() -> int:
    """Compare deploy/monitoring with what the code renders, or write it with --write."""
    parser = argparse.ArgumentParser(prog="python -m trt_spec.deploy.targets.monitoring", description=main.__doc__)
    parser.add_argument("--write", action="store_true", help="write the files instead of comparing them")
    files = render_monitoring()
    if parser.parse_args().write:
        MONITORING_DIR.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            (MONITORING_DIR / name).write_text(text, encoding="utf-8")
        return 0
    stale = [name for name, text in files.items() if _read(MONITORING_DIR / name) != text]
    for name in stale:
        print(f"{MONITORING_DIR / name} is not current: renew it with --write", file=sys.stderr)
    return 1 if stale else 0


def _read(path: Path) -> str | None:
    return path.read_text(encoding="utf-8") if path.is_file() else None


if __name__ == "__main__":
    sys.exit(main())
