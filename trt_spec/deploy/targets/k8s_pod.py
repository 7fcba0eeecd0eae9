"""The pod that runs Triton: container, security, volumes, probes, and the nodes it may run on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from trt_spec.deploy.targets.confinement import SCRATCH_BYTES, SCRATCH_FOLDERS, USER_ID, confine_environment
from trt_spec.deploy.targets.k8s_endpoint import endpoint_containers
from trt_spec.deploy.targets.k8s_names import claim_name, object_labels, object_name, select, selector_labels
from trt_spec.deploy.targets.sizes import NodeSize, ceil_gib
from trt_spec.deploy.targets.target import CONTAINER_ROOT, GpuTarget
from trt_spec.plan.hardware import GPUS, MIB
from trt_spec.plan.launch import READY_PATH

Document = dict[str, Any]

DRAIN_S = 30  # requests in flight may end; then mpirun gives Triton about a second (Open MPI 4.1 and 5.0, measured)
STOP_MARGIN_S = 30
PROBE_PERIOD_S = 10
UNREADY_LIMIT_S = 120  # a server that lost a rank keeps answering, but never becomes ready again
MEMORY_LIMIT_FACTOR = 2  # the request is an estimate, and running out of memory costs the whole start
GPU_RESOURCE = "nvidia.com/gpu"


def render_server_pod(target: GpuTarget, size: NodeSize, command: Sequence[str], ports: Mapping[str, int]) -> Document:
    """The template of a pod that answers requests on ``ports``, by their names."""
    container = {
        **_container(target, size, "triton", command, DRAIN_S),
        "ports": [{"name": name, "containerPort": port} for name, port in ports.items()],
        "startupProbe": _probe(PROBE_PERIOD_S, size.load_s),
        "readinessProbe": _probe(5, 15),
        "livenessProbe": _probe(PROBE_PERIOD_S, UNREADY_LIMIT_S),
    }
    return _template(target, size, "server", [container, *endpoint_containers(target)], DRAIN_S + STOP_MARGIN_S)


def render_worker_pod(target: GpuTarget, size: NodeSize, command: Sequence[str]) -> Document:
    """The template of a pod of a group that lends its GPUs. It stays until the server's pod has drained."""
    drain_s = DRAIN_S + STOP_MARGIN_S
    container = _container(target, size, "worker", command, drain_s)
    return _template(target, size, "worker", [container], drain_s + STOP_MARGIN_S)


def _template(target: GpuTarget, size: NodeSize, component: str, containers: list[Document], grace_s: int) -> Document:
    spec: Document = {
        "serviceAccountName": object_name(target),
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": USER_ID,
            "runAsGroup": USER_ID,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "terminationGracePeriodSeconds": grace_s,
        "tolerations": [{"key": GPU_RESOURCE, "operator": "Exists", "effect": "NoSchedule"}],
        "topologySpreadConstraints": [
            {
                "maxSkew": 1,
                "topologyKey": "kubernetes.io/hostname",
                "whenUnsatisfiable": "ScheduleAnyway",
                "labelSelector": select(target),
            }
        ],
        "containers": containers,
        "volumes": _volumes(target, size),
    }
    if affinity := _gpu_affinity(target):
        spec["affinity"] = affinity
    labels = {**object_labels(target), **selector_labels(target, component)}
    # The files behind the claim are not part of this template: their digests make new ones a new revision.
    annotations = {
        "trtspec-name": target.spec.name,
        "trtspec-deployment-id": target.deployment_id,
        "trtspec-repository-digest": target.repository_digest,
    }
    return {"metadata": {"labels": labels, "annotations": annotations}, "spec": spec}


def _container(target: GpuTarget, size: NodeSize, name: str, command: Sequence[str], drain_s: int) -> Document:
    environment = confine_environment(target.launch.environment)
    pod_name = {"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}
    gpus = {GPU_RESOURCE: str(target.placement.visible_gpus)}
    return {
        "name": name,
        "image": target.image,
        "imagePullPolicy": "IfNotPresent",
        "command": list(command),
        "env": [pod_name, *({"name": key, "value": value} for key, value in environment.items())],
        "resources": {
            "requests": {"cpu": str(size.cpus), "memory": render_gib(size.memory_bytes), **gpus},
            "limits": {"memory": render_gib(MEMORY_LIMIT_FACTOR * size.memory_bytes), **gpus},
        },
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "lifecycle": {"preStop": {"exec": {"command": ["sleep", str(drain_s)]}}},
        "volumeMounts": [
            {"name": "models", "mountPath": CONTAINER_ROOT, "readOnly": True},
            {"name": "shared-memory", "mountPath": "/dev/shm"},
            *({"name": _volume_name(path), "mountPath": path} for path in SCRATCH_FOLDERS),
        ],
    }


def _volumes(target: GpuTarget, size: NodeSize) -> list[Document]:
    shared_memory = {"medium": "Memory", "sizeLimit": render_gib(size.shared_memory_bytes)}
    scratch = {"sizeLimit": render_gib(SCRATCH_BYTES)}
    return [
        {"name": "models", "persistentVolumeClaim": {"claimName": claim_name(target), "readOnly": True}},
        {"name": "shared-memory", "emptyDir": shared_memory},
        *({"name": _volume_name(path), "emptyDir": dict(scratch)} for path in SCRATCH_FOLDERS),
    ]


def render_gib(size_bytes: int) -> str:
    """A Kubernetes quantity, rounded up."""
    return f"{ceil_gib(size_bytes)}Gi"


def _volume_name(path: str) -> str:
    return path.strip("/").partition("/")[0]


def _probe(period_s: int, limit_s: int) -> Document:
    """Fails once the server was not ready for ``limit_s``."""
    return {
        "httpGet": {"path": READY_PATH, "port": "http"},
        "periodSeconds": period_s,
        "timeoutSeconds": 5,
        "failureThreshold": -(-limit_s // period_s),
    }


def _gpu_affinity(target: GpuTarget) -> Document:
    """Nodes whose GPUs the engines were built for, by the labels of NVIDIA's GPU feature discovery (gpu.memory in MiB).

    Engines are tied to a compute capability, which says nothing of memory: H100 and H200 share one. Nine tenths of
    the planned memory tell those apart and let the same GPU pass whatever its driver keeps for itself.
    """
    hardware = target.spec.hardware
    if hardware is None or hardware.gpu == "generic":
        return {}
    gpu = GPUS[hardware.gpu]
    major, minor = gpu.compute_capability
    least_mib = gpu.memory_bytes * 9 // 10 // MIB
    expressions = [
        {"key": f"{GPU_RESOURCE}.compute.major", "operator": "In", "values": [str(major)]},
        {"key": f"{GPU_RESOURCE}.compute.minor", "operator": "In", "values": [str(minor)]},
        {"key": f"{GPU_RESOURCE}.memory", "operator": "Gt", "values": [str(least_mib)]},
    ]
    terms = {"nodeSelectorTerms": [{"matchExpressions": expressions}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
