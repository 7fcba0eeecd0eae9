from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from trt_spec.deploy.deployment import Deployment, EngineDeployment
from trt_spec.deploy.dialect import RECORDED_VERSIONS, load_dialect
from trt_spec.deploy.ownership import MARKER_FILE
from trt_spec.deploy.pbtxt import ModelConfig, parse_pbtxt
from trt_spec.deploy.repository import (
    ADDED_INPUTS,
    ADDED_OUTPUTS,
    BACKEND_MODULE,
    plan_model_configs,
    write_repository,
    write_serve_package,
)
from trt_spec.deploy.resolve import resolve_deployment
from trt_spec.errors import SpecError
from trt_spec.plan.manifest import Manifest
from trt_spec.plan.workspace import Workspace
from trt_spec.spec.load import load_spec

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
        assert not (version / "trtspec_serve" / "local_backend").exists()
        assert (version / "tokenizer" / "tokenizer.json").is_file()
        assert not list(version.rglob("__pycache__"))
        assert not list(version.rglob("model.onnx"))


def test_the_backend_directory_has_the_local_backend(tmp_path: Path) -> None:
    write_serve_package(tmp_path, BACKEND_MODULE)
    assert (tmp_path / "trtspec_serve" / "local_backend" / "backend_model.py").is_file()


def test_engine_models(deployment: Deployment, tmp_path: Path) -> None:
    repository = write_repository(deployment, tmp_path / "repository")
    for model, engine, tokens in (
        ("tensorrt_llm", deployment.target, "1232"),
        ("tensorrt_llm_draft", deployment.draft, "1300"),
    ):
        assert engine is not None
        config = read_config(repository, model)
        assert (config.name, config.backend, config.decoupled) == (model, "tensorrtllm", False)
        assert config.max_batch_size == 8
        assert config.dynamic_batching is None
        assert config.parameters["gpt_model_path"] == engine.path
        assert config.parameters["gpt_model_type"] == "inflight_fused_batching"
        assert config.parameters["enable_kv_cache_reuse"] == "true"
        assert config.parameters["enable_chunked_context"] == "false"
        assert config.parameters["exclude_input_in_output"] == "false"
        assert config.parameters["max_tokens_in_paged_kv_cache"] == tokens


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
            **({"multimodal_encoders_name": ""} if model == "tensorrt_llm_bls" else {}),
            "engine_seed_name": seed,
            "tokenizer_dir": "tokenizer",
            "max_draft_len": "4",
            "max_input_len": "100",
            "max_output_len": "50",
            "max_seq_len": "154",
            "max_inflight_requests": str(deployment.max_batch_size),
            "max_queue_requests": "256",
            "vocab_size": "320",
            "draft_vocab_size": "312",
            "log_probs": "none",
            "draft_source": "model",
            "adaptive": "false",
            "draft_len_by_running": "4",
            "draft_ahead": "false",
            "accept": "tokens",
            "target_logits_width": "320",
            "engine_takes_retention": "true",
            "max_inflight_tokens_target": "1232",
            "max_inflight_tokens_draft": "1300",
        }


def test_target_alone(deployment: Deployment, tmp_path: Path) -> None:
    alone = replace(deployment, draft=None, max_draft_len=0)
    repository = write_repository(alone, tmp_path / "repository")
    assert not (repository / "tensorrt_llm_draft").exists()
    parameters = read_config(repository, "ensemble").parameters
    assert parameters["tensorrt_llm_draft_model_name"] == ""
    assert (parameters["draft_len_by_running"], parameters["adaptive"]) == ("0", "false")
    assert "max_inflight_tokens_draft" not in parameters


@pytest.mark.parametrize(("version", "takes"), [("0.16.0", "false"), ("0.17.0", "true"), ("1.2.1", "true")])
def test_engines_are_told_what_to_keep_where_they_can_be(
    deployment: Deployment, tmp_path: Path, version: str, takes: str
) -> None:
    repository = write_repository(replace(deployment, tensorrt_llm=version), tmp_path / "repository")
    assert read_config(repository, "ensemble").parameters["engine_takes_retention"] == takes


@pytest.mark.parametrize(
    ("target", "draft", "nodes", "ahead"),
    [
        ((), (), 1, "false"),
        ((0, 1), (0,), 1, "false"),
        ((0, 1), (2,), 1, "true"),
        ((0, 1), (2,), 2, "false"),  # the same numbers on each node: where the draft's rank sits is not known here
    ],
)
def test_drafting_ahead_is_for_a_draft_with_gpus_of_its_own(
    deployment: Deployment, tmp_path: Path, target: tuple[int, ...], draft: tuple[int, ...], nodes: int, ahead: str
) -> None:
    assert deployment.draft is not None
    placed = replace(
        deployment,
        target=replace(deployment.target, gpu_device_ids=target, nodes=nodes),
        draft=replace(deployment.draft, gpu_device_ids=draft),
    )
    repository = write_repository(placed, tmp_path / "repository")
    assert read_config(repository, "ensemble").parameters["draft_ahead"] == ahead


def test_drafts_by_look_up_need_no_draft_engine(deployment: Deployment, tmp_path: Path) -> None:
    looked_up = replace(
        deployment, draft=None, draft_source="ngram", adaptive=True, draft_len_by_running=(4, 3, 0), draft_vocab_size=0
    )
    repository = write_repository(looked_up, tmp_path / "repository")
    assert sorted(folder.name for folder in repository.iterdir() if folder.is_dir()) == [
        "ensemble", "tensorrt_llm", "tensorrt_llm_bls"]  # fmt: skip
    parameters = read_config(repository, "tensorrt_llm_bls").parameters
    told = ("max_draft_len", "draft_source", "adaptive", "draft_len_by_running", "accept", "log_probs")
    assert [parameters[key] for key in told] == ["4", "ngram", "true", "4,3,0", "tokens", "none"]
    assert parameters["tensorrt_llm_draft_model_name"] == ""


@pytest.mark.parametrize("name", ["a b", "it's", "1,2:3", 'say "x"', "back\\slash", "한국 ${x}"])
def test_awkward_paths(deployment: Deployment, tmp_path: Path, name: str) -> None:
    assert deployment.draft is not None
    draft = replace(deployment.draft, path=f"/m/{name}/draft")
    repository = write_repository(replace(deployment, draft=draft), tmp_path / name / "repository")
    assert read_config(repository, "tensorrt_llm_draft").parameters["gpt_model_path"] == f"/m/{name}/draft"


@pytest.mark.parametrize("version", RECORDED_VERSIONS)
def test_every_dialect_has_its_own_tensors_and_parameters(deployment: Deployment, tmp_path: Path, version: str) -> None:
    models = load_dialect(version).models
    repository = write_repository(replace(deployment, tensorrt_llm=version), tmp_path / "repository")
    for name in ("tensorrt_llm", "tensorrt_llm_draft"):
        config, template = read_config(repository, name), models["tensorrt_llm"]
        assert (config.inputs, config.outputs) == (template.inputs, template.outputs)
        assert config.parameters.keys() == template.parameters.keys() | template.fixed_parameters.keys()
        assert not [key for key, value in config.parameters.items() if "${" in value or "::" in value]
    for name in ("tensorrt_llm_bls", "ensemble"):
        config, template = read_config(repository, name), models[name]
        for found, recorded, added in (
            (config.inputs, template.inputs, ADDED_INPUTS),
            (config.outputs, template.outputs, ADDED_OUTPUTS),
        ):
            assert found[: len(recorded)] == recorded
            assert set(found[len(recorded) :]) <= set(added)
        assert config.parameters.keys() >= template.parameters.keys()


def test_logits_of_another_type_are_declared_by_every_model(deployment: Deployment, tmp_path: Path) -> None:
    repository = write_repository(replace(deployment, logits_dtype="FP16"), tmp_path / "repository")
    for name in ALL_MODELS:
        logits = [tensor for tensor in read_config(repository, name).outputs if tensor.name.endswith("_logits")]
        assert [tensor.dtype for tensor in logits] == ["FP16", "FP16"]


def resolved(manifest: Manifest, root: str | None = None) -> Deployment:
    return resolve_deployment(manifest, Workspace(Path("/w")), root)


def planned_parameters(deployment: Deployment) -> dict[str, dict[str, Any]]:
    """Parameters, batch size and queue of every model, by its name."""
    return {
        config.name: {
            **config.parameters,
            "max_batch_size": config.max_batch_size,
            "queue": config.dynamic_batching.max_queue_size if config.dynamic_batching else None,
        }
        for config in plan_model_configs(deployment, load_dialect(deployment.tensorrt_llm))
    }


def test_b003_gpu_lists_and_paths_are_written_as_they_are(
    gpu_manifest: Callable[..., Manifest], deployment: Deployment, tmp_path: Path
) -> None:
    manifest = gpu_manifest(target={"gpus": [0, 1]})
    found = resolved(manifest, "/m/a:b,c")
    assert found.draft is not None
    here = {"folder": deployment.target.folder}
    repository = write_repository(
        replace(
            found,
            target=replace(found.target, **here),
            draft=replace(found.draft, **here),
            tokenizer_dir=deployment.tokenizer_dir,
        ),
        tmp_path / "repository",
    )
    target = read_config(repository, "tensorrt_llm").parameters
    assert target["gpu_device_ids"] == "0,1"
    assert target["gpt_model_path"] == "/m/a:b,c/engines/target"


def test_b010_one_asynchronous_instance_has_a_batch_in_flight(deployment: Deployment, tmp_path: Path) -> None:
    repository = write_repository(deployment, tmp_path / "repository")
    for model in ("tensorrt_llm_bls", "ensemble"):
        config = read_config(repository, model)
        assert config.instance_group is not None
        assert config.instance_group.count == 1
        assert config.parameters["max_inflight_requests"] == "8"


def test_b083_only_the_streaming_model_is_decoupled(deployment: Deployment, tmp_path: Path) -> None:
    repository = write_repository(deployment, tmp_path / "repository")
    assert {model: read_config(repository, model).decoupled for model in ALL_MODELS} == {
        "tensorrt_llm": False,
        "tensorrt_llm_draft": False,
        "tensorrt_llm_bls": False,
        "ensemble": True,
    }


def test_b106_queues_are_bounded_by_the_spec(gpu_manifest: Callable[..., Manifest]) -> None:
    """Before the engines: a bound there makes calls wait (queue-stalls)."""
    for size in (None, 100, 1):
        found = planned_parameters(resolved(gpu_manifest(serve={"max_queue_size": size} if size else {})))
        for model in ("tensorrt_llm", "tensorrt_llm_draft"):
            assert found[model]["queue"] is None
        for model in ("tensorrt_llm_bls", "ensemble"):
            assert found[model]["max_queue_requests"] == str(size or 256)


@pytest.mark.parametrize(
    ("change", "model", "key", "value"),
    [
        ({"limits": {"max_batch_size": 3}}, "tensorrt_llm_draft", "max_batch_size", 3),
        ({"limits": {"max_batch_size": 3}}, "ensemble", "max_inflight_requests", "3"),
        ({"limits": {"max_input_len": 77}}, "ensemble", "max_input_len", "77"),
        ({"limits": {"max_output_len": 66}}, "tensorrt_llm_bls", "max_output_len", "66"),
        ({"speculation": {"max_draft_len": 7}}, "ensemble", "max_draft_len", "7"),
        ({"speculation": {"accept": "fast_logits"}}, "tensorrt_llm", "speculative_decoding_fast_logits", "true"),
        ({"speculation": {"accept": "fast_logits"}}, "tensorrt_llm_draft", "participant_ids", "1"),
        ({"target": {"gpus": [3, 1]}}, "tensorrt_llm", "gpu_device_ids", "3,1"),
        ({"target": {"tensor_parallel": 4}}, "tensorrt_llm", "gpu_device_ids", "0,1,2,3"),
        ({"target": {"pipeline_parallel": 2}}, "tensorrt_llm", "gpu_device_ids", "0,1,2,3"),
        ({"draft": {"gpus": [2]}}, "tensorrt_llm_draft", "gpu_device_ids", "2"),
        ({"hardware": {"nodes": 2, "gpus": 1}}, "tensorrt_llm", "num_nodes", "2"),
        ({"serve": {"max_queue_size": 9}}, "ensemble", "max_queue_requests", "9"),
        ({"tensorrt_llm": "0.18.2"}, "ensemble", "engine_seed_name", "random_seed"),
    ],
)
def test_b071_what_the_spec_says_is_in_the_repository(
    gpu_manifest: Callable[..., Manifest], change: dict[str, Any], model: str, key: str, value: object
) -> None:
    before = planned_parameters(resolved(gpu_manifest()))[model]
    after = planned_parameters(resolved(gpu_manifest(**change)))[model]
    assert before[key] != value
    assert after[key] == value


def test_b071_an_unknown_key_is_refused_with_the_one_that_was_meant(tmp_path: Path) -> None:
    file = tmp_path / "s.yaml"
    file.write_text(
        "name: x\nbackend: onnx\ntarget: {model: ./t}\nspeculation: {mode: none}\nserve: {max_queue_sise: 3}\n"
    )
    with pytest.raises(SpecError, match=r"max_queue_sise.*max_queue_size"):
        load_spec(file)


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
        ({"target": EngineDeployment("/x", Path("/nowhere/target"), 1)}, "folder /nowhere/target does not exist"),
        ({"tokenizer_dir": Path("/nowhere")}, "no tokenizer.json"),
        ({"max_batch_size": 0}, "max_batch_size is 0"),
        ({"draft": None}, "max_draft_len is 4, but draft_source is model and there is no draft engine"),
        ({"draft": None, "draft_source": "auto"}, "draft_source is auto and there is no draft engine"),
        ({"draft": None, "draft_source": "ngram", "max_draft_len": 0}, "max_draft_len is 0"),
        ({"draft": None, "draft_source": "ngram", "accept": "logits"}, "no draft engine whose logits"),
        ({"draft_len_by_running": (4, 5)}, "expected lengths of 0 to max_draft_len 4"),
        ({"tensorrt_llm": "0.14.0", "accept": "fast_logits"}, "Fast logits"),
        ({"tensorrt_llm": "0.16.0", "logits_dtype": "FP16"}, "FP32 only"),
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


@pytest.mark.parametrize(
    ("fields", "source"),
    [
        ({}, "none"),
        ({"gathers_logits": True}, "logits"),
        ({"draft": None, "draft_vocab_size": 0, "max_draft_len": 0}, "engine"),
    ],
)
def test_log_probs_come_from_where_the_target_has_them(
    deployment: Deployment, tmp_path: Path, fields: dict[str, Any], source: str
) -> None:
    repository = write_repository(replace(deployment, **fields), tmp_path / "repository")
    for model in ("tensorrt_llm_bls", "ensemble"):
        assert read_config(repository, model).parameters["log_probs"] == source
    assert read_config(repository, "tensorrt_llm").parameters["normalize_log_probs"] == "false"
