"""Scraping and autoscaling, which need operators of their own and so stand in a folder of their own.

The autoscaler follows the orchestrator's gauges. Triton's ``nv_inference_pending_request_count`` would never move: the
orchestrator takes every request at once and lets it wait itself.
"""

from __future__ import annotations

from trt_spec.deploy.targets.k8s_names import metadata, object_name, select
from trt_spec.deploy.targets.k8s_pod import Document
from trt_spec.deploy.targets.k8s_workload import workload_kind
from trt_spec.deploy.targets.monitoring import SCRAPE_INTERVAL
from trt_spec.deploy.targets.sizes import NodeSize
from trt_spec.deploy.targets.target import GpuTarget
from trt_spec.serve.metrics import RUNNING, WAITING

MAX_REPLICAS = 2  # each takes all the GPUs of the spec
RUNNING_FRACTION = 0.75  # of max_batch_size: another pod takes minutes to load, so it starts before the batch is full
WAITING_FRACTION = 0.25
SCALE_DOWN_S = 900
_MAX_WINDOW_S, _MAX_PERIOD_S = 3600, 1800  # the API's bounds


def render_autoscaler(target: GpuTarget, size: NodeSize) -> Document:
    """One pod more at a time, and none before the last one had time to load."""
    batch = target.spec.limits.max_batch_size
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": metadata(target),
        "spec": {
            "scaleTargetRef": {**workload_kind(target), "name": object_name(target)},
            "minReplicas": 1,
            "maxReplicas": MAX_REPLICAS,
            "metrics": [
                _pods_metric(RUNNING.name, batch * RUNNING_FRACTION),
                _pods_metric(WAITING.name, batch * WAITING_FRACTION),
            ],
            "behavior": {
                "scaleUp": {
                    "policies": [{"type": "Pods", "value": 1, "periodSeconds": min(size.load_s, _MAX_PERIOD_S)}]
                },
                "scaleDown": {
                    "stabilizationWindowSeconds": min(max(size.load_s, SCALE_DOWN_S), _MAX_WINDOW_S),
                    "policies": [{"type": "Pods", "value": 1, "periodSeconds": 300}],
                },
            },
        },
    }


def render_service_monitor(target: GpuTarget) -> Document:
    return {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "ServiceMonitor",
        "metadata": metadata(target),
        "spec": {
            "selector": select(target),
            "endpoints": [{"port": "metrics", "path": "/metrics", "interval": SCRAPE_INTERVAL}],
        },
    }


def render_adapter_values() -> Document:
    """Values of the prometheus-adapter chart: both gauges as metrics of a pod, summed over the models of its server."""
    return {
        "rules": {
            "custom": [
                {
                    "seriesQuery": f'{info.name}{{namespace!="",pod!=""}}',
                    "resources": {"overrides": {"namespace": {"resource": "namespace"}, "pod": {"resource": "pod"}}},
                    "name": {"as": info.name},
                    "metricsQuery": "sum(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)",
                }
                for info in (RUNNING, WAITING)
            ]
        }
    }


def _pods_metric(name: str, average: float) -> Document:
    target = {"type": "AverageValue", "averageValue": str(max(1, int(average)))}
    return {"type": "Pods", "pods": {"metric": {"name": name}, "target": target}}
