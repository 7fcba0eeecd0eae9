"""Names and labels of the Kubernetes objects of one deployment."""

from __future__ import annotations

from typing import Any

from trt_spec.deploy.targets.dns_name import dns_name
from trt_spec.deploy.targets.target import GpuTarget

Labels = dict[str, str]


def object_name(target: GpuTarget) -> str:
    """The name of the workload and of what belongs to it."""
    return dns_name(target.spec.name)


def service_name(target: GpuTarget) -> str:
    """The service that clients call; the workload's own name belongs to the headless service of a group."""
    return f"{object_name(target)}-triton"


def claim_name(target: GpuTarget) -> str:
    """The PersistentVolumeClaim that holds the workspace; its maker is the user."""
    return f"{object_name(target)}-models"


def selector_labels(target: GpuTarget, component: str | None = None) -> Labels:
    """What selects the pods of a deployment, or those of them that answer requests (component ``server``)."""
    labels = {"app.kubernetes.io/name": "trtspec", "app.kubernetes.io/instance": object_name(target)}
    return labels if component is None else {**labels, "app.kubernetes.io/component": component}


def select(target: GpuTarget, component: str | None = None) -> dict[str, Labels]:
    """The same as a LabelSelector."""
    return {"matchLabels": selector_labels(target, component)}


def object_labels(target: GpuTarget) -> Labels:
    """The labels of every object; selectors leave the version out, which an update changes."""
    return {
        **selector_labels(target),
        "app.kubernetes.io/version": target.spec.tensorrt_llm,
        "app.kubernetes.io/managed-by": "trtspec",
    }


def metadata(target: GpuTarget) -> dict[str, Any]:
    """Of every object but the service that clients call."""
    return {"name": object_name(target), "labels": object_labels(target)}
