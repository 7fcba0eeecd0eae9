"""The OpenAI endpoint in Triton's pod: a container beside it, which calls it on the pod's own address."""

from __future__ import annotations

from typing import Any

from trt_spec.deploy.host.container import ALL_ADDRESSES
from trt_spec.deploy.targets.k8s_names import object_name
from trt_spec.deploy.targets.target import CONTAINER_ROOT, GpuTarget
from trt_spec.plan.openai_launch import API_KEYS_VARIABLE, HEALTH_PATH, IMAGE, openai_arguments

PORT_NAME = "openai"
API_KEYS_ENTRY = "keys"  # of a secret that an administrator may make; without it everybody may ask
DRAIN_S = 30  # as long as Triton is kept for requests in flight


def endpoint_containers(target: GpuTarget) -> list[dict[str, Any]]:
    """The container of the endpoint, none where the spec asks for none.

    It is live while it answers at all, and ready when Triton is: a Triton that still loads must not restart it.
    """
    serve = target.spec.serve
    if serve.openai_port is None:
        return []
    arguments = openai_arguments(
        triton=f"127.0.0.1:{serve.grpc_port}",
        repository=f"{CONTAINER_ROOT}/k8s/repository",
        name=target.spec.name,
        host=ALL_ADDRESSES,
        port=serve.openai_port,
    )
    secret = {"name": f"{object_name(target)}-api-keys", "key": API_KEYS_ENTRY, "optional": True}
    container = {
        "name": PORT_NAME,
        "image": IMAGE,
        "imagePullPolicy": "IfNotPresent",
        "args": list(arguments),
        "env": [{"name": API_KEYS_VARIABLE, "valueFrom": {"secretKeyRef": secret}}],
        "ports": [{"name": PORT_NAME, "containerPort": serve.openai_port}],
        "resources": {"requests": {"cpu": "1", "memory": "512Mi"}, "limits": {"memory": "2Gi"}},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "readinessProbe": {
            "httpGet": {"path": HEALTH_PATH, "port": PORT_NAME},
            "periodSeconds": 5,
            "timeoutSeconds": 6,
            "failureThreshold": 3,
        },
        "livenessProbe": {"tcpSocket": {"port": PORT_NAME}, "periodSeconds": 10, "failureThreshold": 6},
        "lifecycle": {"preStop": {"exec": {"command": ["sleep", str(DRAIN_S)]}}},
        "volumeMounts": [{"name": "models", "mountPath": CONTAINER_ROOT, "readOnly": True}],
    }
    return [container]
