"""The workload: a Deployment where one node is enough, a LeaderWorkerSet where the ranks lie on several.

A Deployment and no StatefulSet: a pod keeps nothing, needs no name of its own, and all read the same volume.
"""

from __future__ import annotations

from trt_spec.deploy.targets.k8s_names import metadata, object_name, select
from trt_spec.deploy.targets.k8s_pod import Document, render_server_pod, render_worker_pod
from trt_spec.deploy.targets.sizes import NodeSize
from trt_spec.deploy.targets.target import CONTAINER_ROOT, GpuTarget, choose_port

GROUP_SCRIPT = "mpi_group.py"
GROUP_PORT = 7000  # where a group's leader hands out commands; the next free one if the spec serves on it
IMAGE_PULL_S = 1800  # the images hold more than ten gigabytes


def render_workload(target: GpuTarget, size: NodeSize) -> Document:
    """``replicas`` is left to its default of one, so that applying the file again does not undo the autoscaler."""
    spec = _deployment(target, size) if target.placement.node_count == 1 else _leader_worker_set(target, size)
    return {**workload_kind(target), "metadata": metadata(target), "spec": spec}


def workload_kind(target: GpuTarget) -> Document:
    """How other objects name the kind of the workload."""
    if target.placement.node_count == 1:
        return {"apiVersion": "apps/v1", "kind": "Deployment"}
    return {"apiVersion": "leaderworkerset.x-k8s.io/v1", "kind": "LeaderWorkerSet"}


def _deployment(target: GpuTarget, size: NodeSize) -> Document:
    return {
        "selector": select(target, "server"),
        # In place: a pod beyond the others would wait for GPUs that the old one holds.
        "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}},
        "progressDeadlineSeconds": size.load_s + IMAGE_PULL_S,
        "revisionHistoryLimit": 3,
        "template": render_server_pod(target, size, target.launch.command(), target.spec.serve.ports),
    }


def _leader_worker_set(target: GpuTarget, size: NodeSize) -> Document:
    """Pods ``NAME-g`` (leader) and ``NAME-g-1``, ...; in the headless service ``NAME`` each has a name of that form.

    Kubernetes puts the values of POD_NAME and of LWS_LEADER_ADDRESS, which the controller sets, into the commands.
    """
    name, ports = object_name(target), target.spec.serve.ports
    port = choose_port(GROUP_PORT, target.spec.serve.all_ports.values())
    hosts = [
        f"$(POD_NAME){f'-{node}' if node else ''}.{name}:{slots}" for node, slots in enumerate(size.slots)
    ]  # with slots: Open MPI 4 grants a host one rank only if it is named without
    script = ("python3", f"{CONTAINER_ROOT}/k8s/{GROUP_SCRIPT}")
    lead = (*script, "lead", str(port), *target.launch.command(hosts))
    follow = (*script, "follow", str(port), "$(LWS_LEADER_ADDRESS)", f"$(POD_NAME).{name}")
    return {
        "startupPolicy": "LeaderCreated",
        "rolloutStrategy": {
            "type": "RollingUpdate",
            "rollingUpdateConfiguration": {"maxSurge": 0, "maxUnavailable": 1},
        },
        "leaderWorkerTemplate": {
            "size": target.placement.node_count,
            "restartPolicy": "RecreateGroupOnPodRestart",  # no MPI job outlives one of its ranks
            "leaderTemplate": render_server_pod(target, size, lead, {**ports, "group": port}),
            "workerTemplate": render_worker_pod(target, size, follow),
        },
    }
