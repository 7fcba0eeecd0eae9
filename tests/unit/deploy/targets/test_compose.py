"""The Compose file: valid by Compose's schema, closed by default, and changed only where the spec did."""

import json
import re
import subprocess
import sys
import threading
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from importlib.resources import files
from pathlib import Path

import jsonschema
import pytest
import yaml

from trt_spec.deploy.targets.compose import render_compose
from trt_spec.errors import SpecError

from .conftest import TWO_NODES

SCHEMA = json.loads((files("check_jsonschema") / "builtin_schemas" / "vendor" / "compose-spec.json").read_text())


@pytest.fixture
def load(make_target):
    """load(**spec sections) -> the parsed compose.yaml."""
    return lambda **changes: yaml.safe_load(render_compose(make_target("compose", **changes))["compose.yaml"])


def changed_paths(before, after, path=""):
    if isinstance(before, dict) and isinstance(after, dict):
        keys = sorted(before.keys() | after.keys())
        return [found for key in keys for found in changed_paths(before.get(key), after.get(key), f"{path}/{key}")]
    return [] if before == after else [path.lstrip("/")]


def test_the_file_is_valid_by_the_schema_of_compose(load):
    document = load()
    jsonschema.validate(document, SCHEMA)
    document["services"]["triton"]["cap_dropp"] = ["ALL"]
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(document, SCHEMA)


def test_triton_runs_the_planned_command_on_the_planned_gpus(load, make_target):
    target, triton = make_target("compose"), load()["services"]["triton"]
    assert tuple(triton["command"]) == target.launch.command()
    assert "--model-repository=/models/compose/repository" in triton["command"]
    assert triton["image"] == target.image
    assert triton["environment"]["TRTLLM_ORCHESTRATOR"] == "1"
    (device,) = triton["deploy"]["resources"]["reservations"]["devices"]
    assert (device["device_ids"], device["capabilities"]) == (["0", "1", "2", "3"], ["gpu"])


def test_the_script_starts_the_same_and_shellcheck_has_nothing_to_say(make_target, tmp_path):
    target = make_target("compose")
    rendered = render_compose(target)
    (tmp_path / "mpirun").write_text('#!/bin/bash\nprintf "%s\\n" mpirun "$@"; env\n')
    (tmp_path / "mpirun").chmod(0o755)
    script = tmp_path / "launch.sh"
    script.write_text(rendered["launch.sh"])
    subprocess.run([Path(sys.executable).with_name("shellcheck"), script], check=True)
    path = f"{tmp_path}:/usr/bin:/bin"
    said = subprocess.run(["bash", script], env={"PATH": path}, capture_output=True, text=True).stdout.splitlines()
    command = target.launch.command()
    assert tuple(said[: len(command)]) == command
    environment = yaml.safe_load(rendered["compose.yaml"])["services"]["triton"]["environment"]
    assert {f"{name}={value}" for name, value in environment.items() if name != "HOME"} <= set(said)


def test_every_service_is_confined(load):
    services = load()["services"]
    assert set(services) == {"triton", "prometheus", "grafana"}
    for service in services.values():
        assert service["read_only"] is True
        assert service["cap_drop"] == ["ALL"]
        assert service["security_opt"] == ["no-new-privileges:true"]
        assert not service.get("privileged")
        assert re.search(r":[v\d][\w.-]+$", service["image"])
        assert all(port["host_ip"] == "127.0.0.1" for port in service["ports"])
        mounts = [volume for volume in service["volumes"] if volume["type"] == "bind"]
        assert all(mount["read_only"] and not mount["bind"]["create_host_path"] for mount in mounts)
    assert services["triton"]["user"].endswith(":-1000:1000}")
    assert all(services[name]["profiles"] == ["monitoring"] for name in ("prometheus", "grafana"))
    assert "profiles" not in services["triton"]


def test_nvidias_limits_and_the_time_to_load_are_there(load):
    triton = load()["services"]["triton"]
    assert triton["ulimits"] == {"memlock": -1, "stack": 67108864}
    assert int(triton["shm_size"].rstrip("g")) >= 5
    slow, fast = (
        int(load(engine_bytes=size)["services"]["triton"]["healthcheck"]["start_period"].rstrip("s"))
        for size in (400 * 10**9, 10**9)
    )
    assert slow > fast + 1000


def test_the_health_check_fails_unless_the_server_is_ready(load):
    """The script itself, against servers that answer 200 and 400; a proxy of the environment is not asked."""

    class Answer(BaseHTTPRequestHandler):
        status = 200

        def do_GET(self):
            self.send_response(self.status if self.path == "/v2/health/ready" else 404)
            self.end_headers()

        def log_message(self, *_):
            pass

    with HTTPServer(("127.0.0.1", 0), Answer) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        _, *command = load(serve={"http_port": server.server_port})["services"]["triton"]["healthcheck"]["test"]
        codes = []
        for Answer.status in (200, 400):
            argv = [sys.executable, *command[1:]]
            codes.append(subprocess.run(argv, capture_output=True, env={"http_proxy": "http://127.0.0.1:9"}).returncode)
        server.shutdown()
    assert codes == [0, 1]


@pytest.mark.parametrize(
    ("host", "published"), [("localhost", "127.0.0.1"), ("0.0.0.0", "0.0.0.0"), ("10.1.2.3", "10.1.2.3")]
)
def test_ports_are_published_on_the_specs_address(load, host, published):
    ports = load(serve={"host": host, "http_port": 9000})["services"]["triton"]["ports"]
    assert [port["host_ip"] for port in ports] == [published] * 3
    assert [port["target"] for port in ports] == [9000, 8001, 8002]
    assert [port["published"] for port in ports] == ["9000", "8001", "8002"]


def test_monitoring_gives_way_where_the_spec_takes_its_ports(load):
    services = load(serve={"http_port": 3000, "grpc_port": 9090, "metrics_port": 3001})["services"]
    published = [port["published"] for service in services.values() for port in service["ports"]]
    assert len(published) == len(set(published)) == 5


def test_monitoring_finds_the_server_the_rules_and_the_dashboard(make_target):
    rendered = render_compose(make_target("compose", serve={"metrics_port": 9002}))
    prometheus = yaml.safe_load(rendered["monitoring/prometheus.yaml"])
    assert prometheus["scrape_configs"][0]["static_configs"][0]["targets"] == ["triton:9002"]
    services = yaml.safe_load(rendered["compose.yaml"])["services"]
    mounted = {f"/etc/trtspec/{name.removeprefix('monitoring/')}" for name in rendered if "/" in name}
    assert prometheus["rule_files"][0] in mounted
    assert services["prometheus"]["command"][0].removeprefix("--config.file=") in mounted
    provider = yaml.safe_load(rendered["monitoring/grafana/dashboards/trtspec.yaml"])["providers"][0]
    assert f"{provider['options']['path']}/trtspec.json" in mounted
    source = yaml.safe_load(rendered["monitoring/grafana/datasources/prometheus.yaml"])["datasources"][0]
    assert source["url"] == "http://prometheus:9090"
    assert json.loads(rendered["monitoring/dashboards/trtspec.json"])["uid"] == "trtspec"


def test_a_changed_spec_changes_only_what_it_should(load):
    before, triton = load(), "services/triton"
    assert changed_paths(before, load(serve={"http_port": 9000})) == [
        f"{triton}/command",
        f"{triton}/healthcheck/test",
        f"{triton}/ports",
    ]
    monitored = [f"services/{name}/labels/trtspec.monitoring-digest" for name in ("grafana", "prometheus")]
    assert changed_paths(before, load(name="other")) == [
        "name",
        *monitored,
        f"{triton}/labels/trtspec.deployment-id",
    ]
    assert set(monitored) < set(changed_paths(before, load(serve={"metrics_port": 9002})))  # what they read changed
    assert changed_paths(before, load(limits={"max_batch_size": 2})) == [
        f"{triton}/command",  # fewer threads
        f"{triton}/labels/trtspec.deployment-id",
    ]
    two = load(target={"model": "owner/target", "tensor_parallel": 2})
    assert changed_paths(before, two) == [
        f"{triton}/command",
        f"{triton}/deploy/resources/reservations/devices",
        f"{triton}/labels/trtspec.deployment-id",
        f"{triton}/shm_size",
    ]


@pytest.mark.parametrize("name", ["Llama_3.1-405B", "9lives", "a" * 63])
def test_any_name_of_a_spec_becomes_a_project_name(load, name):
    document = load(name=name)
    jsonschema.validate(document, SCHEMA)
    assert re.fullmatch(r"[a-z0-9][a-z0-9_-]*", document["name"])


def test_compose_replaces_no_variable_but_the_user(make_target):
    """``$$`` stands for the character; the host that a spec names may not hold one, its command line may."""
    target = make_target("compose")
    environment = {**target.launch.environment, "X": "a$b"}
    launch = replace(target.launch, environment=environment, ranks=((*target.launch.ranks[0], "--x=$HOME"),))
    triton = yaml.safe_load(render_compose(replace(target, launch=launch))["compose.yaml"])["services"]["triton"]
    assert triton["command"][-1] == "--x=$$HOME"
    assert triton["environment"]["X"] == "a$$b"
    assert triton["user"] == "${TRTSPEC_USER:-1000:1000}"


def test_what_compose_cannot_do_is_refused(make_target):
    with pytest.raises(SpecError, match="2 nodes"):
        render_compose(make_target("compose", **TWO_NODES))
    with pytest.raises(SpecError, match="addresses only"):
        render_compose(make_target("compose", serve={"host": "gpu-host.example"}))


def test_the_openai_endpoint_is_there_if_asked_for(load, make_target):
    assert "openai" not in load()["services"]
    serve = {"host": "10.0.0.1", "grpc_port": 8101, "openai_port": 9000}
    document = load(serve=serve)
    jsonschema.validate(document, SCHEMA)
    service = document["services"]["openai"]
    name = make_target("compose").spec.name
    assert {"--triton=triton:8101", "--port=9000", f"--model-name={name}", "--host=0.0.0.0"} <= set(service["command"])
    assert "--repository=/models/compose/repository" in service["command"]
    assert service["ports"] == [{"target": 9000, "host_ip": "10.0.0.1", "published": "9000", "protocol": "tcp"}]
    assert service["image"].startswith("${TRTSPEC_OPENAI_IMAGE:-trtspec-openai:")
    assert service["depends_on"] == {"triton": {"condition": "service_healthy"}}
    assert service["environment"] == {"TRTSPEC_API_KEYS": None}
    assert service["read_only"] and service["cap_drop"] == ["ALL"]
    without = document["services"]["triton"]
    assert without == load(serve={key: serve[key] for key in ("host", "grpc_port")})["services"]["triton"]
