from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path

import pytest

from trt_spec.deploy.deployment import Deployment
from trt_spec.deploy.ownership import MARKER_FILE
from trt_spec.deploy.pbtxt import DynamicBatching, ModelConfig, parse_pbtxt
from trt_spec.deploy.repository import ADDED_INPUTS, ADDED_OUTPUTS, write_repository
from trt_spec.errors import SpecError

ALL_MODELS = ["ensemble", "tensorrt_llm", "tensorrt_llm_bls", "tensorrt_llm_draft"]


def read_config(repository: Path, model: str) -> ModelConfig:
    return parse_pbtxt((repository / model / "config.pbtxt").read_text(encoding="utf-8"))


def snapshot(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_layout(deployment: Deployment, tmp_path: Path) -> None:
    repository = write_repository(deployment, tmp_path / "repository")
    assert sorted(path.name for path in repository.iterdir() if path.is_dir()) == ALL_MODELS
    for model in ("tensorrt_llm", "tensorrt_llm_draft"):
        assert [path.name for path in (repository / model / "1").iterdir()] == [".gitkeep"]
    for model in ("tensorrt_llm_bls", "ensemble"):
        version = repository / model / "1"
        assert sorted(path.name for path in version.iterdir()) == ["model.py", "tokenizer", "trtspec_serve"]
        assert (version / "trtspec_serve" / "orchestrator_model.py").is_file()
        assert (version / "tokenizer" / "tokenizer.json").is_file()
        assert not list(version.rglob("__pycache__"))
        assert not list(version.rglob("model.onnx"))


def test_engine_models(deployment: Deployment, tmp_path: Path) -> None:
    repository = write_repository(deployment, tmp_path / "repository")
    for model, engine in (
        ("tensorrt_llm", deployment.target_engine),
        ("tensorrt_llm_draft", deployment.draft_engine),
    ):
        config = read_config(repository, model)
        assert (config.name, config.backend, config.decoupled) == (model, "tensorrtllm", False)
        assert config.max_batch_size == 8
        assert config.dynamic_batching == DynamicBatching((8,), 0, 0)
        assert config.parameters["gpt_model_path"] == str(engine)
        assert config.parameters["gpt_model_type"] == "inflight_fused_batching"
        assert config.parameters["enable_kv_cache_reuse"] == "true"
        assert config.parameters["enable_chunked_context"] == "false"
        assert config.parameters["exclude_input_in_output"] == "false"
        assert config.parameters["max_tokens_in_paged_kv_cache"] == "1232"


@pytest.mark.parametrize(("version", "seed"), [("0.17.0", "random_seed"), ("0.18.2", "random_seed"), ("1.2.1", "seed")])
def test_orchestrators(deployment: Deployment, tmp_path: Path, version: str, seed: str) -> None:
    repository = write_repository(replace(deployment, tensorrt_llm=version), tmp_path / "repository")
    for model, decoupled in (("tensorrt_llm_bls", False), ("ensemble", True)):
        config = read_config(repository, model)
        assert (config.backend, config.decoupled) == ("python", decoupled)
        assert config.instance_group is not None
        inputs, outputs = ({tensor.name: tensor for tensor in side} for side in (config.inputs, config.outputs))
        assert len(inputs) == len(config.inputs), "an input stands twice"
        assert len(outputs) == len(config.outputs), "an output stands twice"
        assert {tensor.name for tensor in ADDED_INPUTS} <= inputs.keys()
        assert {tensor.name for tensor in ADDED_OUTPUTS} <= outputs.keys()
        assert [name for name, tensor in inputs.items() if not tensor.optional] == ["text_input", "max_tokens"]
        assert config.parameters == {
            "tensorrt_llm_model_name": "tensorrt_llm",
            "tensorrt_llm_draft_model_name": "tensorrt_llm_draft",
            "accumulate_tokens": "false",
            "engine_seed_name": seed,
            "tokenizer_dir": "tokenizer",
            "max_draft_len": "4",
            "max_input_len": "100",
            "max_output_len": "50",
            "max_seq_len": "154",
            "max_inflight_requests": str(deployment.max_batch_size),
            "max_queue_requests": "256",
        }


def test_target_alone(deployment: Deployment, tmp_path: Path) -> None:
    alone = replace(deployment, draft_engine=None, max_draft_len=0)
    repository = write_repository(alone, tmp_path / "repository")
    assert not (repository / "tensorrt_llm_draft").exists()
    assert read_config(repository, "ensemble").parameters["tensorrt_llm_draft_model_name"] == ""


@pytest.mark.parametrize("name", ["a b", "it's", "1,2:3", 'say "x"', "back\\slash", "한국 ${x}"])
def test_awkward_paths(deployment: Deployment, tmp_path: Path, name: str) -> None:
    engine = tmp_path / name
    engine.mkdir()
    repository = write_repository(replace(deployment, draft_engine=engine), tmp_path / name / "repository")
    assert read_config(repository, "tensorrt_llm_draft").parameters["gpt_model_path"] == str(engine)


def test_same_input_same_bytes_and_a_list_of_digests(deployment: Deployment, tmp_path: Path) -> None:
    first = snapshot(write_repository(deployment, tmp_path / "a"))
    assert first == snapshot(write_repository(deployment, tmp_path / "b"))
    marker = json.loads(first.pop(MARKER_FILE))
    assert marker["files"] == {name: hashlib.sha256(content).hexdigest() for name, content in first.items()}
    assert "1.3.0rc3" in marker["dialect"]["trust"]


def test_replaces_its_own_even_after_a_server_compiled_it(deployment: Deployment, tmp_path: Path) -> None:
    repository = write_repository(deployment, tmp_path / "repository")
    (repository / "ensemble" / "1" / "__pycache__").mkdir()
    (repository / "ensemble" / "1" / "__pycache__" / "model.pyc").touch()
    (repository / "tensorrt_llm" / "config.pbtxt").unlink()
    write_repository(replace(deployment, max_batch_size=2), repository)
    assert read_config(repository, "tensorrt_llm").max_batch_size == 2
    assert not list(repository.rglob("*.pyc"))


def test_refuses_what_it_did_not_write(deployment: Deployment, tmp_path: Path) -> None:
    foreign = tmp_path / "repository"
    foreign.mkdir()
    (foreign / "thesis.tex").write_text("years of work")
    before = snapshot(tmp_path)
    with pytest.raises(SpecError, match="not written by trtspec"):
        write_repository(deployment, foreign)
    (foreign / "thesis.tex").rename(tmp_path / "file")
    with pytest.raises(SpecError, match="is a file"):
        write_repository(deployment, tmp_path / "file")
    (tmp_path / "file").rename(foreign / "thesis.tex")
    assert snapshot(tmp_path) == before


def test_refuses_to_lose_changes_of_the_user(deployment: Deployment, tmp_path: Path) -> None:
    repository = write_repository(deployment, tmp_path / "repository")
    config = repository / "ensemble" / "config.pbtxt"
    original = config.read_text()
    config.write_text(original + "# mine\n")
    with pytest.raises(SpecError, match=r"changed since .*ensemble/config\.pbtxt"):
        write_repository(deployment, repository)
    assert config.read_text().endswith("# mine\n")
    config.write_text(original)
    (repository / "mine").mkdir()
    (repository / "mine" / "config.pbtxt").touch()
    with pytest.raises(SpecError, match=r"mine/config\.pbtxt"):
        write_repository(deployment, repository)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"target_engine": Path("/nowhere/target")}, "target engine folder /nowhere/target does not exist"),
        ({"tokenizer_dir": Path("/nowhere")}, "no tokenizer.json"),
        ({"max_batch_size": 0}, "max_batch_size is 0"),
        ({"draft_engine": None}, "max_draft_len is 4"),
        ({"tensorrt_llm": "0.13.0"}, "0.19.0"),
    ],
)
def test_a_bad_deployment_leaves_nothing(
    deployment: Deployment, tmp_path: Path, changes: dict[str, object], message: str
) -> None:
    before = sorted(path.name for path in tmp_path.iterdir())
    with pytest.raises(SpecError, match=message):
        write_repository(replace(deployment, **changes), tmp_path / "repository")  # type: ignore[arg-type]
    assert sorted(path.name for path in tmp_path.iterdir()) == before
