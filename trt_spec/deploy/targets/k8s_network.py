"""What surrounds the pods: their account, the service that clients call, who may reach them, and evictions."""

from __future__ import annotations

from trt_spec.deploy.targets.k8s_names import object_labels, object_name, selector_labels, service_name
from trt_spec.deploy.targets.k8s_pod import Document
from trt_spec.deploy.targets.k8s_workload import serve_ports
from trt_spec.deploy.targets.target import GpuTarget

PULL_SECRET = "nvcr-io"  # for a private copy of the image; a pod starts without it where none is needed
DNS_PORT = 53


def render_service_account(target: GpuTarget) -> Document:
    """An account without rights and without a token: the server never calls the API of the cluster."""
    return {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": _metadata(target),
        "automountServiceAccountToken": False,
        "imagePullSecrets": [{"name": PULL_SECRET}],
    }


def render_service(target: GpuTarget) -> Document:
    name = object_name(target.spec.name)
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {**_metadata(target), "name": service_name(name)},
        "spec": {
            "type": "ClusterIP",
            "selector": selector_labels(name, "server"),
            "ports": [
                {"name": port_name, "port": port, "targetPort": port_name}
                for port_name, port in serve_ports(target).items()
            ],
        },
    }


def render_disruption_budget(target: GpuTarget) -> Document:
    """One pod at a time. A minimum of one would stop a node with the only pod from ever being drained."""
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": _metadata(target),
        "spec": {
            "maxUnavailable": 1,
            "selector": _pods(target),
        },
    }


def render_network_policy(target: GpuTarget) -> Document:
    """Clients reach the ports of the spec and nothing else; a server calls nobody. Pods of a group trust each other.

    MPI and NCCL have no authentication of their own and choose their ports freely.
    """
    ports = [{"port": port_name, "protocol": "TCP"} for port_name in serve_ports(target)]
    ingress: list[Document] = [{"ports": ports}]
    egress: list[Document] = []
    if target.nodes > 1:
        ingress.append({"from": [{"podSelector": _pods(target)}]})
        dns = [{"port": DNS_PORT, "protocol": protocol} for protocol in ("UDP", "TCP")]
        egress = [{"to": [{"podSelector": _pods(target)}]}, {"ports": dns}]
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": _metadata(target),
        "spec": {
            "podSelector": _pods(target),
            "policyTypes": ["Ingress", "Egress"],
            "ingress": ingress,
            "egress": egress,
        },
    }


def _metadata(target: GpuTarget) -> Document:
    return {"name": object_name(target.spec.name), "labels": object_labels(target)}


def _pods(target: GpuTarget) -> Document:
    return {"matchLabels": selector_labels(object_name(target.spec.name))}
