"""What verify learns from a spec and its workspace."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from trt_spec.errors import SpecError
from trt_spec.plan.workspace import Workspace
from trt_spec.spec.model import Spec
from trt_spec.verify.deployment import resolve_options
from trt_spec.verify.judge import near_tie_gap
from trt_spec.verify.thresholds import Thresholds


def make_spec(backend: str = "onnx", dtype: str = "auto") -> Spec:
    document = {
        "name": "toy",
        "backend": backend,
        "target": {"model": "/models/big", "dtype": dtype},
        "draft": {"model": "/models/small"},
        "speculation": {"max_draft_len": 6},
        "serve": {"grpc_port": 9001},
    }
    if backend == "engine":
        document["hardware"] = {"gpu": "H200", "gpus": 1}
    return Spec.model_validate(document)


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    workspace = Workspace(tmp_path)
    workspace.engine("target").mkdir(parents=True)
    return workspace


def test_thresholds_of_the_spec(workspace: Workspace) -> None:
    wanted = {"min_speedup": 1.2, "max_p99_ttft_ms": 500, "lossless": "strict"}
    spec = Spec.model_validate(make_spec().model_dump() | {"verify": wanted})
    assert resolve_options(spec, workspace).thresholds == Thresholds(1.2, 500.0, "strict")
    assert resolve_options(make_spec(), workspace).thresholds == Thresholds(None, None, "near_tie")


def test_spec_alone(workspace: Workspace) -> None:
    options = resolve_options(make_spec(), workspace)
    assert options.url == "127.0.0.1:9001" and options.num_draft_tokens == 6
    assert options.metrics_url == "http://127.0.0.1:8002/metrics"
    assert options.tokenizer_folder is None
    assert options.report_folder == workspace.reports
    assert options.models["target"].startswith("/models/big") and options.models["draft"].startswith("/models/small")


@pytest.mark.parametrize(
    ("host", "url"), [("10.0.0.7", "10.0.0.7:7001"), ("0.0.0.0", "127.0.0.1:7001"), ("::", "[::1]:7001")]
)
def test_running_server_and_tokenizer(workspace: Workspace, host: str, url: str) -> None:
    (workspace.root / "server.json").write_text(json.dumps({"host": host, "grpc_port": 7001}), encoding="utf-8")
    (workspace.engine("target") / "tokenizer.json").write_text("{}", encoding="utf-8")
    options = resolve_options(make_spec(), workspace)
    assert options.url == url
    assert options.tokenizer_folder == workspace.engine("target")


def test_tolerance_is_that_of_the_targets_data_type(workspace: Workspace) -> None:
    assert resolve_options(make_spec(), workspace).near_tie_gap == near_tie_gap("float32")
    assert resolve_options(make_spec("engine", "float16"), workspace).near_tie_gap == near_tie_gap("float16")
    assert resolve_options(make_spec("engine"), workspace).near_tie_gap == near_tie_gap(None)
    config = {"pretrained_config": {"dtype": "bfloat16"}}
    (workspace.engine("target") / "config.json").write_text(json.dumps(config), encoding="utf-8")
    assert resolve_options(make_spec("engine"), workspace).near_tie_gap == near_tie_gap("bfloat16")


@pytest.mark.parametrize("content", ["{", "[]"])
def test_broken_server_file_is_named(workspace: Workspace, content: str) -> None:
    (workspace.root / "server.json").write_text(content, encoding="utf-8")
    with pytest.raises(SpecError, match=r"server\.json"):
        resolve_options(make_spec(), workspace)


def test_a_target_with_heads_of_its_own_has_no_draft_to_name(workspace: Workspace) -> None:
    values = make_spec("engine").model_dump(mode="json", exclude={"draft", "speculation"})
    spec = Spec.model_validate({**values, "speculation": {"mode": "medusa", "heads": "/models/heads"}})
    options = resolve_options(spec, workspace)
    assert options.num_draft_tokens is None
    assert set(options.models) == {"target"}
