"""Docker Compose files of a deployment on one node: Triton, and on demand Prometheus and Grafana beside it.

Not run against a real GPU here. What the file says is checked against Compose's own schema.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from trt_spec.deploy.host.container import ALL_ADDRESSES
from trt_spec.deploy.shell_words import join_words, quote_word
from trt_spec.deploy.targets.address import plain_address
from trt_spec.deploy.targets.confinement import SCRATCH_BYTES, SCRATCH_FOLDERS, USER_ID, confine_environment
from trt_spec.deploy.targets.dns_name import dns_name
from trt_spec.deploy.targets.monitoring import (
    render_grafana_provider,
    render_grafana_source,
    render_prometheus,
)
from trt_spec.deploy.targets.monitoring_dashboard import render_dashboard
from trt_spec.deploy.targets.monitoring_rules import render_rules
from trt_spec.deploy.targets.sizes import ceil_gib, size_node
from trt_spec.deploy.targets.target import CONTAINER_ROOT, GpuTarget, choose_port
from trt_spec.deploy.targets.yaml_text import render_yaml
from trt_spec.errors import SpecError
from trt_spec.plan.container_limits import MEMLOCK, STACK_BYTES
from trt_spec.plan.launch import EXIT_TIMEOUT_S, READY_PATH
from trt_spec.plan.openai_launch import API_KEYS_VARIABLE, HEALTH_PATH, IMAGE, openai_arguments

SERVICE, ENDPOINT = "triton", "openai"
LAUNCH_FILE = "launch.sh"
PROFILE = "monitoring"
MONITORING_ROOT = "/etc/trtspec"  # of the folder monitoring/, in both of its containers
# Tags seen in public compose files; neither image was pulled here.
PROMETHEUS_IMAGE, PROMETHEUS_PORT = "prom/prometheus:v3.5.0", 9090
GRAFANA_IMAGE, GRAFANA_PORT = "grafana/grafana:12.2.1", 3000
# Never too short, but mpirun leaves Triton about a second after SIGTERM (measured, Open MPI 4.1 and 5.0): what is in
# flight then is cut off.
STOP_GRACE_S = EXIT_TIMEOUT_S + 15
READY_PERIOD_S = 10

USER = f"${{TRTSPEC_USER:-{USER_ID}:{USER_ID}}}"
ENDPOINT_IMAGE = f"${{TRTSPEC_OPENAI_IMAGE:-{IMAGE}}}"
_VARIABLES = ("user", "image")  # of a service, where a variable of Compose is meant

Service = dict[str, Any]

# Grafana shows dashboards to whoever reaches its port, and has no account that could change them.
GRAFANA_SETTINGS = {
    "GF_AUTH_ANONYMOUS_ENABLED": "true",
    "GF_AUTH_ANONYMOUS_ORG_ROLE": "Viewer",
    "GF_AUTH_BASIC_ENABLED": "false",
    "GF_AUTH_DISABLE_LOGIN_FORM": "true",
    "GF_SECURITY_DISABLE_INITIAL_ADMIN_CREATION": "true",
    "GF_ANALYTICS_REPORTING_ENABLED": "false",
    "GF_ANALYTICS_CHECK_FOR_UPDATES": "false",
    "GF_PATHS_PROVISIONING": f"{MONITORING_ROOT}/grafana",
}


def render_compose(target: GpuTarget) -> dict[str, str]:
    """Files by their names relative to WORKSPACE/compose, where ``..`` is the workspace.

    The launch listens on all addresses of its container: the published ports bind serve.host. Raises SpecError for
    several nodes, and for a serve.host that is no address.
    """
    _check(target)
    host = plain_address(target.spec.serve.host, "Docker publishes ports")
    monitoring = _render_monitoring(target)
    services = {
        SERVICE: _plan_triton(target, host),
        **_plan_endpoint(target, host),
        **_plan_monitoring(target, host, _digest(monitoring)),
    }
    volumes: dict[str, Any] = {"prometheus": {}, "grafana": {}}
    document = {"name": dns_name(target.spec.name), "services": services, "volumes": volumes}
    about = f"Written by trtspec deploy for {target.spec.name}: docker compose up --detach --wait"
    return {
        "compose.yaml": render_yaml(_escape(document), about),
        LAUNCH_FILE: _render_launch(target),
        **monitoring,
    }


def _render_monitoring(target: GpuTarget) -> dict[str, str]:
    """What Prometheus and Grafana read, by its path beside compose.yaml."""
    prometheus = f"http://prometheus:{PROMETHEUS_PORT}"
    scraped = f"{SERVICE}:{target.spec.serve.metrics_port}"
    return {
        "monitoring/prometheus.yaml": render_prometheus(scraped, target.spec.name, f"{MONITORING_ROOT}/rules.yaml"),
        "monitoring/rules.yaml": render_rules(),
        "monitoring/dashboards/trtspec.json": render_dashboard(),
        "monitoring/grafana/datasources/prometheus.yaml": render_grafana_source(prometheus),
        "monitoring/grafana/dashboards/trtspec.yaml": render_grafana_provider(f"{MONITORING_ROOT}/dashboards"),
    }


def _digest(texts: Mapping[str, str]) -> str:
    return hashlib.sha256(json.dumps(texts, sort_keys=True).encode()).hexdigest()


def _check(target: GpuTarget) -> None:
    nodes = target.placement.node_count
    if nodes > 1:
        raise SpecError(
            f"The engines of {target.spec.name} lie on {nodes} nodes, and Docker Compose runs on one.",
            remedy="Deploy with --to k8s or --to slurm.",
        )


def _plan_triton(target: GpuTarget, host: str) -> Service:
    serve = target.spec.serve
    size = size_node(target)
    device = {
        "driver": "nvidia",
        "device_ids": [str(gpu) for gpu in range(target.placement.visible_gpus)],
        "capabilities": ["gpu"],
    }
    return {
        "image": target.image,
        "command": list(target.launch.command()),
        "environment": confine_environment(target.launch.environment),
        # Who may read the workspace: TRTSPEC_USER=$(id -u):$(id -g) where that is not everybody.
        "user": USER,
        "init": True,  # mpirun is not made to be process 1
        **_hardened([f"{folder}:mode=1777,size={ceil_gib(SCRATCH_BYTES)}g" for folder in SCRATCH_FOLDERS]),  # in memory
        "ipc": "private",
        "shm_size": f"{ceil_gib(size.shared_memory_bytes)}g",
        "ulimits": {"memlock": MEMLOCK, "stack": STACK_BYTES},
        "ports": [_publish(host, port) for port in serve.ports.values()],
        "volumes": [_mount("..", CONTAINER_ROOT)],
        "healthcheck": {
            "test": ["CMD", "python3", "-c", _ready_script(serve.http_port, READY_PATH)],
            "interval": f"{READY_PERIOD_S}s",
            "timeout": f"{READY_PERIOD_S}s",
            "retries": 3,
            "start_period": f"{size.load_s}s",
        },
        "restart": "unless-stopped",
        "stop_grace_period": f"{STOP_GRACE_S}s",
        "logging": _plan_logging(),
        "deploy": {"resources": {"reservations": {"devices": [device]}}},
        # `compose up` compares this file alone: the digests of what is mounted make it start a new container.
        "labels": {
            "trtspec.deployment-id": target.deployment_id,
            "trtspec.repository-digest": target.repository_digest,
        },
    }


def _plan_endpoint(target: GpuTarget, host: str) -> dict[str, Service]:
    """The OpenAI API, where the spec asks for it; it reads the tokenizer of the repository and calls Triton's gRPC."""
    serve = target.spec.serve
    if serve.openai_port is None:
        return {}
    arguments = openai_arguments(
        triton=f"{SERVICE}:{serve.grpc_port}",
        repository=f"{CONTAINER_ROOT}/compose/repository",
        name=target.spec.name,
        host=ALL_ADDRESSES,
        port=serve.openai_port,
    )
    service = {
        "image": ENDPOINT_IMAGE,
        "command": list(arguments),
        "environment": {API_KEYS_VARIABLE: None},  # handed on from the shell of `docker compose up`
        "user": USER,
        "init": True,
        **_hardened(["/tmp"]),
        "ports": [_publish(host, serve.openai_port)],
        "volumes": [_mount("..", CONTAINER_ROOT)],
        "depends_on": {SERVICE: {"condition": "service_healthy"}},
        "healthcheck": {
            "test": ["CMD", "python3", "-c", _ready_script(serve.openai_port, HEALTH_PATH)],
            "interval": f"{READY_PERIOD_S}s",
            "timeout": f"{READY_PERIOD_S}s",
            "retries": 3,
        },
        "restart": "unless-stopped",
        "logging": _plan_logging(),
        "labels": {"trtspec.repository-digest": target.repository_digest},
    }
    return {ENDPOINT: service}


def _render_launch(target: GpuTarget) -> str:
    """The same start as a script, for a container that is run without Compose and brings a home of its own."""
    environment = confine_environment(target.launch.environment, home=None)
    lines = [
        "#!/bin/bash",
        f"# Written by trtspec deploy for {target.spec.name}: starts Triton where the workspace is {CONTAINER_ROOT}.",
        "set -euo pipefail",
        *(f"export {name}={quote_word(value)}" for name, value in environment.items()),
        f"exec {join_words(target.launch.command())}",
    ]
    return "\n".join(lines) + "\n"


def _plan_monitoring(target: GpuTarget, host: str, digest: str) -> dict[str, Service]:
    """Both services; ``digest`` is that of the files that they read."""
    taken = target.spec.serve.all_ports.values()
    prometheus_port = choose_port(PROMETHEUS_PORT, taken)
    grafana_port = choose_port(GRAFANA_PORT, [*taken, prometheus_port])
    prometheus = {
        "image": PROMETHEUS_IMAGE,
        "command": [
            f"--config.file={MONITORING_ROOT}/prometheus.yaml",
            "--storage.tsdb.path=/prometheus",
            "--storage.tsdb.retention.time=15d",
        ],
        "ports": [_publish(host, PROMETHEUS_PORT, prometheus_port)],
        "volumes": [_mount("./monitoring", MONITORING_ROOT), _keep("prometheus", "/prometheus")],
    }
    grafana = {
        "image": GRAFANA_IMAGE,
        "environment": dict(GRAFANA_SETTINGS),
        "ports": [_publish(host, GRAFANA_PORT, grafana_port)],
        "volumes": [_mount("./monitoring", MONITORING_ROOT), _keep("grafana", "/var/lib/grafana")],
        "depends_on": ["prometheus"],
    }
    common = {
        "profiles": [PROFILE],
        **_hardened(["/tmp"]),
        "restart": "unless-stopped",
        "logging": _plan_logging(),
        "labels": {"trtspec.monitoring-digest": digest},
    }
    return {"prometheus": {**prometheus, **common}, "grafana": {**grafana, **common}}


def _hardened(scratch: list[str]) -> Service:
    return {
        "read_only": True,
        "tmpfs": scratch,
        "cap_drop": ["ALL"],
        "security_opt": ["no-new-privileges:true"],
    }


def _plan_logging() -> Service:
    return {"driver": "json-file", "options": {"max-size": "50m", "max-file": "5"}}


def _publish(host: str, port: int, published: int | None = None) -> Service:
    return {"target": port, "host_ip": host, "published": str(published or port), "protocol": "tcp"}


def _mount(source: str, path: str) -> Service:
    bind = {"create_host_path": False}  # a missing folder is an error, not an empty one that root owns
    return {"type": "bind", "source": source, "target": path, "read_only": True, "bind": bind}


def _keep(volume: str, path: str) -> Service:
    return {"type": "volume", "source": volume, "target": path}


def _ready_script(port: int, path: str) -> str:
    """Python is in the image, for its models need it; anything but status 200 raises. No proxy is asked."""
    url = f"http://127.0.0.1:{port}{path}"
    direct = "import urllib.request as u; u.build_opener(u.ProxyHandler({}))"
    return f"{direct}.open({url!r}, timeout={READY_PERIOD_S - 1})"


def _escape(value: Any) -> Any:
    """Compose replaces variables in every text; ``$$`` stands for the character. Some are variables on purpose."""
    if isinstance(value, dict):
        return {key: item if key in _VARIABLES else _escape(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_escape(item) for item in value]
    return value.replace("$", "$$") if isinstance(value, str) else value
