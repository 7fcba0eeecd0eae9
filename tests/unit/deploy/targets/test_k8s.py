"""The Kubernetes files as a whole: valid by the published schemas, complete, and changed only where the spec did."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import pytest
import yaml

from trt_spec.deploy.targets.k8s import render_k8s
from trt_spec.deploy.targets.target import GpuTarget
from trt_spec.plan.toolchain import load_profile

from .conftest import TWO_NODES, MakeTarget

SCHEMAS = Path(__file__).parents[3] / "fixtures" / "k8s"
CUSTOM = {"LeaderWorkerSet": "leaderworkerset-v0.9.0.json", "ServiceMonitor": "servicemonitor-v0.93.0.json"}
NOT_OBJECTS = {"kustomization.yaml", "monitoring/kustomization.yaml", "monitoring/prometheus-adapter-values.yaml"}
KUBERNETES = ("1.36", "1.37")
ID = "deployment.yaml/spec/template/metadata/annotations/trtspec-deployment-id"  # changes with all but serve

Documents = dict[str, Any]


def load(target: GpuTarget) -> Documents:
    """The documents by file name; what is no YAML as text."""
    return {name: yaml.safe_load(text) if name.endswith("yaml") else text for name, text in render_k8s(target).items()}


def changed(before: GpuTarget, after: GpuTarget) -> set[str]:
    """Paths of the values that differ: file, then keys."""
    return set(_differences(load(before), load(after), ""))


def _differences(before: Any, after: Any, path: str) -> list[str]:
    if isinstance(before, dict) and isinstance(after, dict):
        keys = sorted(before.keys() | after.keys())
        return [found for key in keys for found in _differences(before.get(key), after.get(key), f"{path}/{key}")]
    if isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        pairs = enumerate(zip(before, after, strict=True))
        return [found for index, pair in pairs for found in _differences(*pair, f"{path}/{index}")]
    return [] if before == after else [path.lstrip("/")]


@functools.cache
def custom_schema(kind: str) -> jsonschema.Draft202012Validator:
    return jsonschema.Draft202012Validator(json.loads((SCHEMAS / CUSTOM[kind]).read_text()))


def check(document: Documents, version: str) -> None:
    if document["kind"] in CUSTOM:
        custom_schema(document["kind"]).validate(document)
    else:
        kubernetes_validate.validate(document, version, strict=True)


@pytest.mark.parametrize("version", KUBERNETES)
@pytest.mark.parametrize("changes", [{}, TWO_NODES, {"name": "Llama-3.1_405B"}], ids=["one-node", "two-nodes", "name"])
def test_objects_are_valid(make_target: MakeTarget, changes: dict[str, Any], version: str) -> None:
    documents = load(make_target(**changes))
    objects = [value for name, value in documents.items() if name.endswith("yaml") and name not in NOT_OBJECTS]
    assert len(objects) == 7
    for document in objects:
        check(document, version)


@pytest.mark.parametrize("version", KUBERNETES)
@pytest.mark.parametrize(
    ("file", "keys"),
    [
        ("deployment.yaml", ("spec", "template", "spec", "containers", 0)),
        ("service.yaml", ("spec",)),
        ("networkpolicy.yaml", ("spec",)),
        ("poddisruptionbudget.yaml", ("spec",)),
        ("serviceaccount.yaml", ()),
        ("monitoring/horizontalpodautoscaler.yaml", ("spec", "metrics", 0)),
        ("monitoring/servicemonitor.yaml", ("spec", "endpoints", 0)),
    ],
)
def test_the_schemas_refuse_an_unknown_key(
    make_target: MakeTarget, version: str, file: str, keys: tuple[str | int, ...]
) -> None:
    documents = load(make_target())
    part = documents[file]
    for key in keys:
        part = part[key]
    part["readinesProbe"] = {}
    with pytest.raises(jsonschema.ValidationError):
        check(documents[file], version)


def test_the_group_schema_looks_into_its_pods(make_target: MakeTarget) -> None:
    group = load(make_target(**TWO_NODES))["leaderworkerset.yaml"]
    group["spec"]["leaderWorkerTemplate"]["leaderTemplate"]["spec"]["containers"][0]["readinesProbe"] = {}
    with pytest.raises(jsonschema.ValidationError):
        check(group, KUBERNETES[-1])


@pytest.mark.parametrize("changes", [{}, TWO_NODES], ids=["one-node", "two-nodes"])
def test_each_kustomization_lists_the_objects_beside_it(make_target: MakeTarget, changes: dict[str, Any]) -> None:
    documents = load(make_target(**changes))
    objects = {name for name in documents if name.endswith("yaml") and name not in NOT_OBJECTS}
    own = {name for name in objects if "/" not in name}
    assert set(documents["kustomization.yaml"]["resources"]) == own
    assert {f"monitoring/{name}" for name in documents["monitoring/kustomization.yaml"]["resources"]} == objects - own


def test_one_node_is_a_deployment_and_several_are_a_group(make_target: MakeTarget) -> None:
    one, two = load(make_target()), load(make_target(**TWO_NODES))
    assert "deployment.yaml" in one and "leaderworkerset.yaml" not in one and "mpi_group.py" not in one
    assert "leaderworkerset.yaml" in two and "deployment.yaml" not in two and "mpi_group.py" in two


def test_the_same_target_gives_the_same_bytes_and_no_anchors(make_target: MakeTarget) -> None:
    assert render_k8s(make_target()) == render_k8s(make_target())
    for text in render_k8s(make_target(**TWO_NODES)).values():
        assert "&id" not in text


def test_every_reference_names_an_object_of_the_deployment(make_target: MakeTarget) -> None:
    for changes in ({}, TWO_NODES):
        documents = load(make_target(**changes))
        workload = documents.get("deployment.yaml") or documents["leaderworkerset.yaml"]
        scaled = documents["monitoring/horizontalpodautoscaler.yaml"]["spec"]["scaleTargetRef"]
        assert scaled == {key: workload[key] for key in ("apiVersion", "kind")} | {"name": workload["metadata"]["name"]}
        template = workload["spec"].get("template") or workload["spec"]["leaderWorkerTemplate"]["leaderTemplate"]
        assert template["spec"]["serviceAccountName"] == documents["serviceaccount.yaml"]["metadata"]["name"]
        labels = template["metadata"]["labels"]
        service = documents["service.yaml"]
        assert service["spec"]["selector"].items() <= labels.items()
        monitored = documents["monitoring/servicemonitor.yaml"]["spec"]["selector"]["matchLabels"]
        assert monitored.items() <= service["metadata"]["labels"].items()
        for name in ("networkpolicy.yaml", "poddisruptionbudget.yaml"):
            spec = documents[name]["spec"]
            selector = spec.get("podSelector") or spec["selector"]
            assert selector["matchLabels"].items() <= labels.items()
        container_ports = {port["name"] for port in template["spec"]["containers"][0]["ports"]}
        assert {port["targetPort"] for port in service["spec"]["ports"]} <= container_ports


def test_workers_of_a_group_get_no_requests(make_target: MakeTarget) -> None:
    documents = load(make_target(**TWO_NODES))
    worker = documents["leaderworkerset.yaml"]["spec"]["leaderWorkerTemplate"]["workerTemplate"]
    assert not documents["service.yaml"]["spec"]["selector"].items() <= worker["metadata"]["labels"].items()
    isolated = documents["networkpolicy.yaml"]["spec"]["podSelector"]["matchLabels"]
    assert isolated.items() <= worker["metadata"]["labels"].items()


def test_other_ports_change_ports_alone(make_target: MakeTarget) -> None:
    ports = {"http_port": 9000, "grpc_port": 9001, "metrics_port": 9002}
    container = "deployment.yaml/spec/template/spec/containers/0"
    expected = {f"{container}/ports/{index}/containerPort" for index in range(3)}
    expected |= {f"service.yaml/spec/ports/{index}/port" for index in range(3)}
    found = changed(make_target(), make_target(serve=ports))
    assert {path for path in found if not path.startswith(f"{container}/command/")} == expected
    assert len(found) == len(expected) + 3  # --http-port, --grpc-port, --metrics-port


def test_another_host_changes_nothing(make_target: MakeTarget) -> None:
    assert not changed(make_target(), make_target(serve={"host": "10.0.0.1"}))


def test_another_batch_size_changes_the_autoscaler_the_threads_and_the_id(make_target: MakeTarget) -> None:
    found = changed(make_target(), make_target(limits={"max_batch_size": 32}))
    metrics = "monitoring/horizontalpodautoscaler.yaml/spec/metrics"
    threads = "deployment.yaml/spec/template/spec/containers/0/command/19"
    assert found == {ID, threads, *(f"{metrics}/{index}/pods/target/averageValue" for index in range(2))}


def test_fewer_gpus_change_resources_and_the_pools_of_the_orchestrator(make_target: MakeTarget) -> None:
    found = changed(make_target(), make_target(target={"model": "owner/target", "tensor_parallel": 2}))
    pod = "deployment.yaml/spec/template/spec"
    resources = f"{pod}/containers/0/resources"
    assert found == {
        ID,
        f"{pod}/containers/0/command",
        f"{resources}/requests/cpu",
        f"{resources}/requests/memory",
        f"{resources}/requests/nvidia.com/gpu",
        f"{resources}/limits/memory",
        f"{resources}/limits/nvidia.com/gpu",
        f"{pod}/volumes/1/emptyDir/sizeLimit",
    }


def test_another_name_changes_names_and_labels_alone(make_target: MakeTarget) -> None:
    found = changed(make_target(), make_target(name="other"))
    allowed = (ID, "name", "app.kubernetes.io/instance", "trtspec-name", "serviceAccountName", "claimName")
    assert found and all(path.endswith(allowed) for path in found)


def test_other_engines_restart_the_pods(make_target: MakeTarget) -> None:
    found = changed(make_target(), make_target(fingerprint="other"))
    assert found == {ID}


def test_another_version_changes_image_and_labels(make_target: MakeTarget) -> None:
    after = make_target(tensorrt_llm="0.18.2")
    found = changed(make_target(), after)
    container = "deployment.yaml/spec/template/spec/containers/0"
    labels = {path for path in found if path.endswith("labels/app.kubernetes.io/version")}
    assert labels and found - labels == {ID, f"{container}/image"}
    (pod,) = load(after)["deployment.yaml"]["spec"]["template"]["spec"]["containers"]
    assert pod["image"] == load_profile("0.18.2").container


def test_the_image_volume_of_the_guide_is_valid(make_target: MakeTarget) -> None:
    guide = (SCHEMAS.parents[2] / "docs" / "how-to" / "kubernetes.md").read_text(encoding="utf-8")
    block = next(part for part in guide.split("```yaml\n")[1:] if part.startswith("patches:")).partition("```")[0]
    (patch,) = yaml.safe_load(block)["patches"]
    (operation,) = yaml.safe_load(patch["patch"])
    deployment = load(make_target())["deployment.yaml"]
    assert operation["path"] == "/spec/template/spec/volumes/0"
    volumes = deployment["spec"]["template"]["spec"]["volumes"]
    assert volumes[0]["name"] == operation["value"]["name"]
    volumes[0] = operation["value"]
    for version in KUBERNETES:
        check(deployment, version)


def test_the_openai_endpoint_stands_in_the_pod_if_asked_for(make_target: MakeTarget) -> None:
    documents = load(make_target(serve={"grpc_port": 8101, "openai_port": 9000}))
    plain = load(make_target(serve={"grpc_port": 8101}))
    triton, endpoint = documents["deployment.yaml"]["spec"]["template"]["spec"]["containers"]
    assert [triton] == plain["deployment.yaml"]["spec"]["template"]["spec"]["containers"]
    assert {"--triton=127.0.0.1:8101", "--port=9000", "--repository=/models/k8s/repository"} <= set(endpoint["args"])
    assert endpoint["ports"] == [{"name": "openai", "containerPort": 9000}]
    assert endpoint["securityContext"]["readOnlyRootFilesystem"] is True
    (key,) = endpoint["env"]
    assert key["valueFrom"]["secretKeyRef"]["optional"] is True
    assert {"name": "openai", "port": 9000, "targetPort": "openai"} in documents["service.yaml"]["spec"]["ports"]
    allowed = documents["networkpolicy.yaml"]["spec"]["ingress"][0]["ports"]
    assert {"port": "openai", "protocol": "TCP"} in allowed
    assert len(allowed) == len(plain["networkpolicy.yaml"]["spec"]["ingress"][0]["ports"]) + 1
    for name in ("deployment.yaml", "service.yaml", "networkpolicy.yaml"):
        kubernetes_validate.validate(documents[name], KUBERNETES[-1], strict=True)
