"""The repository that deploy writes, loaded and asked by the real Triton: in each dialect with tensors of its own, and
as a GPU host gets it, with tiny ONNX engines where TensorRT's would be."""

from __future__ import annotations

import json
import shutil
import urllib.request
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from trt_spec.deploy.deployment import Deployment
from trt_spec.deploy.example import plan_manifest
from trt_spec.deploy.host.launch import LaunchOptions, running_triton
from trt_spec.deploy.host.server import RunningServer
from trt_spec.deploy.launch_files import deploy_to
from trt_spec.deploy.ownership import MARKER_FILE
from trt_spec.deploy.pbtxt import parse_pbtxt, render_pbtxt
from trt_spec.deploy.repository import write_repository
from trt_spec.deploy.workspace import deploy_workspace
from trt_spec.plan.manifest import load_manifest, render_manifest
from trt_spec.plan.workspace import Workspace
from trt_spec.spec.model import Serve, Spec
from trt_spec.spec.presets import load_preset

ENGINE_MODELS = ("tensorrt_llm", "tensorrt_llm_draft")
MODELS = (*ENGINE_MODELS, "tensorrt_llm_bls", "ensemble")


def call(server: RunningServer, path: str, body: dict[str, Any] | None = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    with urllib.request.urlopen(f"{server.http_url}/v2/models/{path}", data=data, timeout=60) as answer:
        return json.load(answer)


@pytest.mark.parametrize(
    ("version", "seed", "inputs", "outputs"), [("0.18.2", "random_seed", 53, 12), ("1.2.1", "seed", 62, 21)]
)
def test_every_model_loads_and_answers(
    served_in_dialect: Callable[[str], RunningServer],
    tiny_deployment: Callable[..., Deployment],
    version: str,
    seed: str,
    inputs: int,
    outputs: int,
) -> None:
    server = served_in_dialect(version)
    for model in MODELS:
        loaded = call(server, f"{model}/config")
        assert loaded["model_transaction_policy"]["decoupled"] == (model == "ensemble")
        if model in ENGINE_MODELS:
            assert (len(loaded["input"]), len(loaded["output"])) == (inputs, outputs)
    for model in ("tensorrt_llm_bls", "ensemble"):
        body = {"text_input": "hello", "max_tokens": 8, seed: 1, "return_perf_metrics": True}
        answer = call(server, f"{model}/generate", body)
        assert isinstance(answer["text_output"], str)
        assert answer["total_draft_tokens"] > 0
        assert answer["draft_rounds"] >= 1
    # What Python compiled while it served is no change of the user's.
    write_repository(tiny_deployment(version, gathers_logits=True), Path(server.repository))


def stream(server: RunningServer, body: dict[str, Any]) -> list[dict[str, Any]]:
    """The server-sent events of ``ensemble``."""
    url = f"{server.http_url}/v2/models/ensemble/generate_stream"
    with urllib.request.urlopen(url, data=json.dumps({**body, "stream": True}).encode(), timeout=60) as answer:
        return [json.loads(line.removeprefix(b"data: ")) for line in answer if line.startswith(b"data: ")]


@pytest.fixture(params=["llama-3.1-405b-h200x4", "llama-3.1-70b-h200x1"])
def gpu_workspace(
    request: pytest.FixtureRequest, tmp_path: Path, tiny: Path, record_engine: Callable[..., None]
) -> Workspace:
    """The workspace of a preset as its build leaves it on a GPU host, with empty rank files."""
    place = Workspace(tmp_path / "a: work, space")
    spec = Spec.model_validate(yaml.safe_load(load_preset(request.param).text))
    manifest = plan_manifest(spec)
    for role, model in spec.models().items():
        shutil.copytree(tiny / "tokenizer", place.engine(role))
        fingerprint = manifest.engines[role].fingerprint
        record_engine(place.engine(role), model.tensor_parallel, spec.tensorrt_llm, fingerprint=fingerprint)
    place.manifest.write_text(render_manifest(manifest), encoding="utf-8")
    return place


def put_onnx_engines(place: Workspace, build_tiny_engine: Callable[..., Path]) -> None:
    """Name tiny ONNX engines where the deployed repository names TensorRT's, and change nothing else."""
    spec = load_manifest(place).spec
    limits = {"max_batch_size": spec.limits.max_batch_size, "max_draft_len": spec.speculation.max_draft_len}
    for model, role in zip(ENGINE_MODELS, ("target", "draft"), strict=True):
        engine = place.root / "onnx, too" / role
        shutil.copytree(build_tiny_engine(f"pair-{role}", **limits), engine)
        file = place.repository / model / "config.pbtxt"
        config = parse_pbtxt(file.read_text(encoding="utf-8"))
        parameters = {**config.parameters, "gpt_model_path": str(engine)}
        file.write_text(render_pbtxt(replace(config, parameters=parameters)), encoding="utf-8")


def test_what_a_gpu_host_gets_is_served_by_the_embedded_triton(
    gpu_workspace: Workspace, free_ports: dict[str, int], build_tiny_engine: Callable[..., Path]
) -> None:
    repository = deploy_workspace(gpu_workspace)
    put_onnx_engines(gpu_workspace, build_tiny_engine)
    options = LaunchOptions(
        repository=repository, workspace=gpu_workspace.root, serve=Serve(**free_ports), timeout_s=120
    )
    with running_triton(options) as server:
        for model in ENGINE_MODELS:
            parameters = call(server, f"{model}/config")["parameters"]
            assert parameters["gpu_device_ids"]["string_value"]
            assert parameters["cross_kv_cache_fraction"]["string_value"] == ""
        with urllib.request.urlopen(f"{server.http_url}/v2/repository/index", data=b"{}", timeout=60) as answer:
            states = {model["name"]: model.get("state") for model in json.load(answer)}
        assert states == dict.fromkeys(MODELS, "READY")
        body = {"text_input": "hello", "max_tokens": 8}
        plain = call(server, "tensorrt_llm_bls/generate", body)
        assert plain["total_draft_tokens"] > 0
        streamed = stream(server, body)
        assert "".join(event["text_output"] for event in streamed) == plain["text_output"]
        assert streamed[-1]["total_draft_tokens"] > 0


def files_of(folder: Path) -> dict[str, bytes]:
    return {file.relative_to(folder).as_posix(): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def test_a_gpu_host_gets_the_same_but_for_the_engine_paths(gpu_workspace: Workspace) -> None:
    served = deploy_workspace(gpu_workspace)
    on_gpus = deploy_to(gpu_workspace, load_manifest(gpu_workspace).spec, "k8s").repository
    ours, theirs = files_of(served), files_of(on_gpus)
    assert ours.keys() == theirs.keys()
    differing = {name for name in ours if ours[name] != theirs[name]}
    assert differing == {MARKER_FILE, *(f"{model}/config.pbtxt" for model in ENGINE_MODELS)}
    for model, role in zip(ENGINE_MODELS, ("target", "draft"), strict=True):
        here, there = (parse_pbtxt(files[f"{model}/config.pbtxt"].decode()) for files in (ours, theirs))
        assert there.parameters["gpt_model_path"] == f"/models/engines/{role}"
        parameters = {**here.parameters, "gpt_model_path": f"/models/engines/{role}"}
        assert replace(here, parameters=parameters) == there
    markers = [json.loads(files[MARKER_FILE]) for files in (ours, theirs)]
    assert all(marker.pop("files") for marker in markers)
    assert markers[0] == markers[1]
