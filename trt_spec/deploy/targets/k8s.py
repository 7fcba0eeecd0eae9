"""Kubernetes objects of a deployment, as files for `kubectl apply -k`. None of them was applied to a cluster here."""

from __future__ import annotations

from importlib.resources import files

from trt_spec.deploy.targets.k8s_network import (
    render_disruption_budget,
    render_network_policy,
    render_service,
    render_service_account,
)
from trt_spec.deploy.targets.k8s_pod import Document
from trt_spec.deploy.targets.k8s_scaling import render_adapter_values, render_autoscaler, render_service_monitor
from trt_spec.deploy.targets.k8s_workload import GROUP_SCRIPT, render_workload
from trt_spec.deploy.targets.sizes import size_node
from trt_spec.deploy.targets.target import GpuTarget
from trt_spec.deploy.targets.yaml_text import render_yaml

MONITORING = "monitoring"
ABOUT = "Written by `trtspec deploy --to k8s`. Change the spec, or patch with an overlay of kustomize."


def render_k8s(target: GpuTarget) -> dict[str, str]:
    """Files by their names relative to WORKSPACE/k8s.

    ``monitoring/`` needs the Prometheus operator and its adapter and is applied on its own; the adapter's values are
    for Helm. A group of pods also gets the script that starts its ranks, which it reads from the mounted workspace.
    """
    size = size_node(target)
    workload = render_workload(target, size)
    objects: dict[str, Document] = {
        "serviceaccount.yaml": render_service_account(target),
        f"{workload['kind'].lower()}.yaml": workload,
        "service.yaml": render_service(target),
        "networkpolicy.yaml": render_network_policy(target),
        "poddisruptionbudget.yaml": render_disruption_budget(target),
    }
    monitoring: dict[str, Document] = {
        "servicemonitor.yaml": render_service_monitor(target),
        "horizontalpodautoscaler.yaml": render_autoscaler(target, size),
    }
    documents = {
        "kustomization.yaml": _kustomization(objects),
        **objects,
        f"{MONITORING}/kustomization.yaml": _kustomization(monitoring),
        **{f"{MONITORING}/{name}": document for name, document in monitoring.items()},
        f"{MONITORING}/prometheus-adapter-values.yaml": render_adapter_values(),
    }
    texts = {name: render_yaml(document, ABOUT) for name, document in documents.items()}
    if target.placement.node_count > 1:
        texts[GROUP_SCRIPT] = files("trt_spec.deploy.targets").joinpath(GROUP_SCRIPT).read_text(encoding="utf-8")
    return texts


def _kustomization(documents: dict[str, Document]) -> Document:
    return {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": list(documents),
    }
