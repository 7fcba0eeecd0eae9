"""What surrounds the pods: their account, the service that clients call, who may reach them, and evictions."""

from __future__ import annotations

from trt_spec.deploy.targets.k8s_names import metadata, select, selector_labels, service_name
from trt_spec.deploy.targets.k8s_pod import Document
from trt_spec.deploy.targets.target import GpuTarget

PULL_SECRET = "nvcr-io"  # for a private copy of the image; a pod starts without it where none is needed
DNS_PORT = 53


def render_service_account(target: GpuTarget) -> Document:
    """An account without rights and without a token: the server never calls the API of the cluster."""
    return {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": metadata(target),
        "automountServiceAccountToken": False,
        "imagePullSecrets": [{"name": PULL_SECRET}],
    }


def render_service(target: GpuTarget) -> Document:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {**metadata(target), "name": service_name(target)},
        "spec": {
            "type": "ClusterIP",
            "selector": selector_labels(target, "server"),
            "ports": [
                {"name": port_name, "port": port, "targetPort": port_name}
                for port_name, port in target.spec.serve.all_ports.items()
            ],
        },
    }


def render_disruption_budget(target: GpuTarget) -> Document:
    """One pod at a time. A minimum of one would stop a node with the only pod from ever being drained."""
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": metadata(target),
        "spec": {
            "maxUnavailable": 1,
            "selector": select(target),
        },
    }


def render_network_policy(target: GpuTarget) -> Document:
    """Clients reach the ports of the spec and nothing else; a server calls nobody. Pods of a group trust each other.

    MPI and NCCL have no authentication of their own and choose their ports freely.
    """
    ports = [{"port": port_name, "protocol": "TCP"} for port_name in target.spec.serve.all_ports]
    ingress: list[Document] = [{"ports": ports}]
    egress: list[Document] = []
    if target.placement.node_count > 1:
        ingress.append({"from": [{"podSelector": select(target)}]})
        dns = [{"port": DNS_PORT, "protocol": protocol} for protocol in ("UDP", "TCP")]
        egress = [{"to": [{"podSelector": select(target)}]}, {"ports": dns}]
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": metadata(target),
        "spec": {
            "podSelector": select(target),
            "policyTypes": ["Ingress", "Egress"],
            "ingress": ingress,
            "egress": egress,
        },
    }
