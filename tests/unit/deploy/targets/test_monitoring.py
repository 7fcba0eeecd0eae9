"""Rules and dashboard: valid PromQL over metrics that exist, and the committed copies are current."""

import json
import re
from pathlib import Path

import promql_parser
import pytest
import yaml

from trt_spec.deploy.targets import monitoring
from trt_spec.deploy.targets.monitoring_dashboard import ROWS, render_dashboard
from trt_spec.deploy.targets.monitoring_rules import ALERTS, RECORDED, render_rules
from trt_spec.serve.metrics import METRICS, Outcome

RECORDED_METRICS = json.loads((Path(__file__).parents[3] / "fixtures" / "metrics" / "triton.json").read_text())
SCRAPED = {"instance", "job"}
OURS = {"model", "version"}


def known_series():
    """Labels by series name: Triton's, the backend's, ours and those that the rules record."""
    known = {**RECORDED_METRICS["server"], **RECORDED_METRICS["backend"]}
    known = {name: set(labels) for name, labels in known.items()}
    for info in METRICS:
        labels = OURS | ({"outcome"} if info.by_outcome else set())
        if info.kind == "HISTOGRAM":
            known |= {f"{info.name}_bucket": labels | {"le"}, f"{info.name}_sum": labels, f"{info.name}_count": labels}
        else:
            known[info.name] = labels
    return known | {name: {"model"} for name in RECORDED}


def selectors(expression):
    """(name, {label: value}) of every selector; raises ValueError for what is no PromQL."""
    found = []

    def visit(node):
        if isinstance(node, promql_parser.VectorSelector):
            found.append((node.name, {matcher.name: matcher.value for matcher in node.matchers.matchers}))
        return True

    promql_parser.walk(promql_parser.parse(expression.replace("$__rate_interval", "5m")), visit)
    return found


def rule_expressions():
    groups = yaml.safe_load(render_rules())["groups"]
    return {rule.get("record") or rule["alert"]: rule["expr"] for group in groups for rule in group["rules"]}


def dashboard_expressions():
    panels = json.loads(render_dashboard())["panels"]
    return {
        f"{panel['title']} {target['refId']}": target["expr"] for panel in panels for target in panel.get("targets", [])
    }


EXPRESSIONS = rule_expressions() | dashboard_expressions()


@pytest.mark.parametrize("name", EXPRESSIONS)
def test_every_query_parses_and_reads_metrics_and_labels_that_exist(name):
    known, read = known_series(), selectors(EXPRESSIONS[name])
    assert read
    for metric, labels in read:
        assert metric in known
        assert set(labels) <= known[metric] | SCRAPED
        for label, value in labels.items():
            if label == "outcome":
                assert set(value.split("|")) <= set(Outcome.__args__)
            elif label in RECORDED_METRICS["label_values"]:
                assert set(value.split("|")) <= set(RECORDED_METRICS["label_values"][label])


def test_the_check_sees_wrong_names_and_broken_queries():
    assert selectors("rate(nv_inference_requests[5m])") == [("nv_inference_requests", {})]
    assert "nv_inference_requests" not in known_series()
    with pytest.raises(ValueError):
        selectors("sum by (model (rate(nv_inference_count[5m]))")


def test_rules_have_what_prometheus_demands():
    groups = yaml.safe_load(render_rules())["groups"]
    alerts = [rule for group in groups for rule in group["rules"] if "alert" in rule]
    assert {rule["alert"] for rule in alerts} == {alert.name for alert in ALERTS}
    for rule in alerts:
        assert re.fullmatch(r"\d+[smh]", rule["for"])
        assert rule["labels"]["severity"] in ("critical", "warning")
        assert rule["annotations"]["summary"].endswith(".")
        assert rule["annotations"]["description"]
    assert all(re.fullmatch(r"[a-z_]+:[a-z_]+:[a-z0-9_]+", name) for name in RECORDED)


def test_the_guide_explains_every_alert():
    guide = (Path(__file__).parents[4] / "docs" / "how-to" / "monitoring.md").read_text(encoding="utf-8")
    assert set(re.findall(r"\bTrtspec[A-Z]\w+", guide)) == {alert.name for alert in ALERTS}


def test_panels_lie_side_by_side_within_the_grid():
    taken = set()
    panels = json.loads(render_dashboard())["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels) == sum(map(len, ROWS.values())) + len(ROWS)
    for panel in panels:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken
        taken |= cells


def test_every_metric_of_ours_is_on_the_dashboard():
    text = " ".join(dashboard_expressions().values())
    assert [info.name for info in METRICS if info.name not in text] == []


def test_the_committed_files_are_current():
    assert monitoring.MONITORING.list_stale(monitoring.render_monitoring()) == [], "renew with --write"


def test_prometheus_scrapes_the_server_and_reads_the_rules():
    config = yaml.safe_load(monitoring.render_prometheus("triton:8002", "pair", "/etc/rules.yaml"))
    assert config["scrape_configs"][0]["static_configs"] == [
        {"targets": ["triton:8002"], "labels": {"deployment": "pair"}}
    ]
    assert config["rule_files"] == ["/etc/rules.yaml"]
