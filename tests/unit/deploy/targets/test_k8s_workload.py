"""Pods: what they run, as whom, with which GPUs and volumes, and how long they may take for it."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from trt_spec.deploy.targets.k8s import render_k8s
from trt_spec.deploy.targets.sizes import size_node
from trt_spec.deploy.targets.target import GpuTarget
from trt_spec.plan.launch import EXIT_TIMEOUT_S

from .conftest import TWO_NODES, MakeTarget


def templates(target: GpuTarget) -> list[dict[str, Any]]:
    """The template of the Deployment, or those of the group's leader and worker."""
    documents = render_k8s(target)
    if "deployment.yaml" in documents:
        return [yaml.safe_load(documents["deployment.yaml"])["spec"]["template"]]
    group = yaml.safe_load(documents["leaderworkerset.yaml"])["spec"]["leaderWorkerTemplate"]
    return [group["leaderTemplate"], group["workerTemplate"]]


def container(template: dict[str, Any]) -> dict[str, Any]:
    (only,) = template["spec"]["containers"]
    return dict(only)


@pytest.fixture(params=[{}, TWO_NODES], ids=["one-node", "two-nodes"])
def target(request: pytest.FixtureRequest, make_target: MakeTarget) -> GpuTarget:
    return make_target(**request.param)


def test_no_pod_has_more_rights_than_it_needs(target: GpuTarget) -> None:
    for template in templates(target):
        spec = template["spec"]
        assert spec["automountServiceAccountToken"] is False
        assert spec["securityContext"]["runAsNonRoot"] is True and spec["securityContext"]["runAsUser"] > 0
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        context = container(template)["securityContext"]
        assert context["readOnlyRootFilesystem"] is True and context["allowPrivilegeEscalation"] is False
        assert context["capabilities"] == {"drop": ["ALL"]}
        for key in ("hostNetwork", "hostPID", "hostIPC"):
            assert not spec.get(key)


def test_no_secret_stands_in_any_file(target: GpuTarget) -> None:
    for template in templates(target):
        names = {entry["name"] for entry in container(template)["env"]}
        assert not [name for name in names if "TOKEN" in name or "SECRET" in name or "PASSWORD" in name]
    account = yaml.safe_load(render_k8s(target)["serviceaccount.yaml"])
    assert account["automountServiceAccountToken"] is False
    assert all(set(reference) == {"name"} for reference in account["imagePullSecrets"])


def test_the_models_are_read_only_and_the_rest_is_writable(target: GpuTarget) -> None:
    for template in templates(target):
        mounts = {mount["mountPath"]: mount for mount in container(template)["volumeMounts"]}
        volumes = {volume["name"]: volume for volume in template["spec"]["volumes"]}
        assert {mount["name"] for mount in mounts.values()} == set(volumes)
        models = mounts.pop("/models")
        assert models["readOnly"] is True and volumes[models["name"]]["persistentVolumeClaim"]["readOnly"] is True
        home = next(entry["value"] for entry in container(template)["env"] if entry["name"] == "HOME")
        assert set(mounts) == {"/tmp", "/dev/shm", home}
        assert all("emptyDir" in volumes[mount["name"]] for mount in mounts.values())
        assert volumes[mounts["/dev/shm"]["name"]]["emptyDir"]["medium"] == "Memory"


def test_each_pod_gets_the_gpus_of_its_node(target: GpuTarget) -> None:
    for template in templates(target):
        resources = container(template)["resources"]
        assert resources["limits"]["nvidia.com/gpu"] == resources["requests"]["nvidia.com/gpu"] == "4"


def test_gpus_up_to_the_highest_id_are_asked_for(make_target: MakeTarget) -> None:
    gpus = {"target": {"model": "owner/target", "tensor_parallel": 2, "gpus": [2, 3]}, "draft": None}
    (template,) = templates(make_target(speculation={"mode": "none"}, **gpus))
    assert container(template)["resources"]["limits"]["nvidia.com/gpu"] == "4"


def test_the_startup_probe_outlasts_the_load(make_target: MakeTarget) -> None:
    for engine_bytes in (0, 10**9, 400 * 10**9, 3 * 10**12):
        target = make_target(engine_bytes=engine_bytes)
        (template,) = templates(target)
        probe = container(template)["startupProbe"]
        allowed_s = probe["periodSeconds"] * probe["failureThreshold"]
        load_s = size_node(target).load_s
        assert load_s <= allowed_s < load_s + probe["periodSeconds"]
        assert probe["httpGet"] == {"path": "/v2/health/ready", "port": "http"}
        deployment = yaml.safe_load(render_k8s(target)["deployment.yaml"])
        assert deployment["spec"]["progressDeadlineSeconds"] > allowed_s


def test_b078_a_server_that_is_no_longer_ready_is_restarted(target: GpuTarget) -> None:
    server = container(templates(target)[0])
    readiness, liveness = server["readinessProbe"], server["livenessProbe"]
    assert readiness["httpGet"]["path"] == liveness["httpGet"]["path"] == "/v2/health/ready"
    ready_s = readiness["periodSeconds"] * readiness["failureThreshold"]
    live_s = liveness["periodSeconds"] * liveness["failureThreshold"]
    assert ready_s < 30 < live_s <= 120  # first out of the service, then restarted


def test_requests_in_flight_may_end_before_the_pod_does(target: GpuTarget) -> None:
    server, *workers = templates(target)
    drain_s = int(container(server)["lifecycle"]["preStop"]["exec"]["command"][1])
    grace_s = server["spec"]["terminationGracePeriodSeconds"]
    assert drain_s > 0 and grace_s >= drain_s + EXIT_TIMEOUT_S
    for worker in workers:
        worker_drain_s = int(container(worker)["lifecycle"]["preStop"]["exec"]["command"][1])
        assert worker_drain_s >= grace_s  # a rank that goes earlier takes the server with it
        assert worker["spec"]["terminationGracePeriodSeconds"] > worker_drain_s


def test_an_update_needs_no_gpus_beyond_those_there_are(make_target: MakeTarget) -> None:
    one = yaml.safe_load(render_k8s(make_target())["deployment.yaml"])["spec"]
    assert one["strategy"]["rollingUpdate"] == {"maxSurge": 0, "maxUnavailable": 1}
    two = yaml.safe_load(render_k8s(make_target(**TWO_NODES))["leaderworkerset.yaml"])["spec"]
    assert two["rolloutStrategy"]["rollingUpdateConfiguration"] == {"maxSurge": 0, "maxUnavailable": 1}
    assert "replicas" not in one and "replicas" not in two  # the autoscaler's


def test_nodes_have_the_gpus_that_the_engines_were_built_for(make_target: MakeTarget) -> None:
    def expressions(gpu: str) -> dict[str, tuple[str, list[str]]]:
        (template,) = templates(make_target(hardware={"gpu": gpu, "gpus": 4}))
        affinity = template["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
        (term,) = affinity["nodeSelectorTerms"]
        return {part["key"]: (part["operator"], part["values"]) for part in term["matchExpressions"]}

    h100, h200 = expressions("H100"), expressions("H200")
    assert h200["nvidia.com/gpu.compute.major"] == ("In", ["9"])
    assert h200["nvidia.com/gpu.compute.minor"] == ("In", ["0"])
    assert h200["nvidia.com/gpu.memory"][0] == "Gt"
    assert int(h100["nvidia.com/gpu.memory"][1][0]) < 81559 < int(h200["nvidia.com/gpu.memory"][1][0]) < 143771
    (generic,) = templates(make_target(hardware={"gpu": "generic", "gpus": 4}))
    assert "affinity" not in generic["spec"]


def test_a_deployment_runs_the_launch_as_it_is(make_target: MakeTarget) -> None:
    target = make_target()
    (template,) = templates(target)
    assert tuple(container(template)["command"]) == target.launch.command()
    environment = {entry["name"]: entry.get("value") for entry in container(template)["env"]}
    assert target.launch.environment.items() <= environment.items()
    assert " ".join(target.launch.command()[:4]) == "mpirun --allow-run-as-root --bind-to none"


def test_a_group_starts_each_rank_on_the_pod_of_its_node(make_target: MakeTarget) -> None:
    target = make_target(**TWO_NODES)
    leader, worker = (container(template)["command"] for template in templates(target))
    assert leader[:4] == ["python3", "/models/k8s/mpi_group.py", "lead", "7000"]
    hosts = [leader[index + 1] for index, word in enumerate(leader) if word == "--host"]
    expected = ["$(POD_NAME).pair:6" if node == 0 else "$(POD_NAME)-1.pair:4" for node in target.launch.nodes]
    assert hosts == expected and len(hosts) == target.launch.world_size == 10
    follow = ["follow", "7000", "$(LWS_LEADER_ADDRESS)", "$(POD_NAME).pair"]
    assert worker == ["python3", "/models/k8s/mpi_group.py", *follow]
    group = yaml.safe_load(render_k8s(target)["leaderworkerset.yaml"])["spec"]["leaderWorkerTemplate"]
    assert group["size"] == 2 and group["restartPolicy"] == "RecreateGroupOnPodRestart"


def test_the_port_of_a_group_is_none_of_the_servers(make_target: MakeTarget) -> None:
    target = make_target(serve={"http_port": 7000, "grpc_port": 7001, "metrics_port": 8002}, **TWO_NODES)
    server, worker = (container(template) for template in templates(target))
    assert server["command"][3] == worker["command"][3] == "7002"
    assert {"name": "group", "containerPort": 7002} in server["ports"]


def test_a_group_talks_within_itself_and_a_lone_server_to_nobody(make_target: MakeTarget) -> None:
    one = yaml.safe_load(render_k8s(make_target())["networkpolicy.yaml"])["spec"]
    assert one["egress"] == [] and [set(rule) for rule in one["ingress"]] == [{"ports"}]
    two = yaml.safe_load(render_k8s(make_target(**TWO_NODES))["networkpolicy.yaml"])["spec"]
    pods = {"podSelector": two["podSelector"]}
    assert {"from": [pods]} in two["ingress"] and {"to": [pods]} in two["egress"]
