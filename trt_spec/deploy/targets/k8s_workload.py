"""The workload: a Deployment where one node is enough, a LeaderWorkerSet where the ranks lie on several.

A Deployment and no StatefulSet: a pod keeps nothing, needs no name of its own, and all read the same volume.
"""

from __future__ import annotations

from collections.abc import Mapping

from trt_spec.deploy.targets.k8s_names import object_labels, object_name, selector_labels
from trt_spec.deploy.targets.k8s_pod import Document, render_server_pod, render_worker_pod
from trt_spec.deploy.targets.k8s_sizes import PodSize
from trt_spec.deploy.targets.target import CONTAINER_ROOT, GpuTarget

GROUP_SCRIPT = "mpi_group.py"
GROUP_PORT = 7000  # where a group's leader hands out commands; the next free one if the spec serves on it
IMAGE_PULL_S = 1800  # the images hold more than ten gigabytes


def render_workload(target: GpuTarget, size: PodSize) -> Document:
    """``replicas`` is left to its default of one, so that applying the file again does not undo the autoscaler."""
    return _deployment(target, size) if target.nodes == 1 else _leader_worker_set(target, size)


def serve_ports(target: GpuTarget) -> dict[str, int]:
    """Ports that clients and Prometheus reach, by the names that services and probes use."""
    serve = target.spec.serve
    return {"http": serve.http_port, "grpc": serve.grpc_port, "metrics": serve.metrics_port}


def group_port(ports: Mapping[str, int]) -> int:
    port = GROUP_PORT
    while port in ports.values():
        port += 1
    return port


def _deployment(target: GpuTarget, size: PodSize) -> Document:
    name = object_name(target.spec.name)
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "labels": object_labels(target)},
        "spec": {
            "selector": {"matchLabels": selector_labels(name, "server")},
            # In place: a pod beyond the others would wait for GPUs that the old one holds.
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}},
            "progressDeadlineSeconds": size.load_s + IMAGE_PULL_S,
            "revisionHistoryLimit": 3,
            "template": render_server_pod(target, size, target.launch.command(), serve_ports(target)),
        },
    }


def _leader_worker_set(target: GpuTarget, size: PodSize) -> Document:
    """Pods ``NAME-g`` (leader) and ``NAME-g-1``, ...; in the headless service ``NAME`` each has a name of that form.

    Kubernetes puts the values of POD_NAME and of LWS_LEADER_ADDRESS, which the controller sets, into the commands.
    """
    name = object_name(target.spec.name)
    ports = serve_ports(target)
    port = group_port(ports)
    hosts = [
        f"$(POD_NAME){f'-{node}' if node else ''}.{name}:{slots}" for node, slots in enumerate(size.slots)
    ]  # with slots: Open MPI 4 grants a host one rank only if it is named without
    script = ("python3", f"{CONTAINER_ROOT}/k8s/{GROUP_SCRIPT}")
    lead = (*script, "lead", str(port), *target.launch.command(hosts))
    follow = (*script, "follow", str(port), "$(LWS_LEADER_ADDRESS)", f"$(POD_NAME).{name}")
    return {
        "apiVersion": "leaderworkerset.x-k8s.io/v1",
        "kind": "LeaderWorkerSet",
        "metadata": {"name": name, "labels": object_labels(target)},
        "spec": {
            "startupPolicy": "LeaderCreated",
            "rolloutStrategy": {
                "type": "RollingUpdate",
                "rollingUpdateConfiguration": {"maxSurge": 0, "maxUnavailable": 1},
            },
            "leaderWorkerTemplate": {
                "size": target.nodes,
                "restartPolicy": "RecreateGroupOnPodRestart",  # no MPI job outlives one of its ranks
                "leaderTemplate": render_server_pod(target, size, lead, {**ports, "group": port}),
                "workerTemplate": render_worker_pod(target, size, follow),
            },
        },
    }
