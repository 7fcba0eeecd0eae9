"""Autoscaling follows gauges that exist, and gives a pod the time that it needs to load."""

from __future__ import annotations

import pytest
import yaml

from trt_spec.deploy.targets.k8s import render_k8s
from trt_spec.deploy.targets.sizes import size_node
from trt_spec.serve.metrics import METRICS

from .conftest import TWO_NODES, MakeTarget

GAUGES = {info.name for info in METRICS if info.kind == "GAUGE"}


def test_the_autoscaler_and_the_adapter_name_gauges_of_the_orchestrator(make_target: MakeTarget) -> None:
    files = render_k8s(make_target())
    autoscaler = yaml.safe_load(files["monitoring/horizontalpodautoscaler.yaml"])["spec"]
    scaled_by = {metric["pods"]["metric"]["name"] for metric in autoscaler["metrics"]}
    rules = yaml.safe_load(files["monitoring/prometheus-adapter-values.yaml"])["rules"]["custom"]
    assert scaled_by == {rule["name"]["as"] for rule in rules}
    assert scaled_by <= GAUGES
    assert all(rule["seriesQuery"].startswith(rule["name"]["as"] + "{") for rule in rules)


@pytest.mark.parametrize(("batch", "running", "waiting"), [(1, "1", "1"), (8, "6", "2"), (64, "48", "16")])
def test_thresholds_follow_the_batch_size(make_target: MakeTarget, batch: int, running: str, waiting: str) -> None:
    files = render_k8s(make_target(limits={"max_batch_size": batch}))
    metrics = yaml.safe_load(files["monitoring/horizontalpodautoscaler.yaml"])["spec"]["metrics"]
    assert [metric["pods"]["target"]["averageValue"] for metric in metrics] == [running, waiting]


@pytest.mark.parametrize("engine_bytes", [0, 400 * 10**9, 3 * 10**12])
@pytest.mark.parametrize("changes", [{}, TWO_NODES], ids=["one-node", "two-nodes"])
def test_windows_fit_the_load_time_and_the_bounds_of_the_api(
    make_target: MakeTarget, engine_bytes: int, changes: dict[str, object]
) -> None:
    target = make_target(engine_bytes=engine_bytes, **changes)
    document = yaml.safe_load(render_k8s(target)["monitoring/horizontalpodautoscaler.yaml"])
    behavior = document["spec"]["behavior"]
    load_s = size_node(target).load_s
    (up,) = behavior["scaleUp"]["policies"]
    assert up["value"] == 1 and up["periodSeconds"] == min(load_s, 1800)
    assert min(load_s, 3600) <= behavior["scaleDown"]["stabilizationWindowSeconds"] <= 3600
