"""The files that backend llmapi is deployed with."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from trt_spec.deploy import llmapi_model
from trt_spec.deploy.dialect import load_llmapi_template
from trt_spec.deploy.launch_files import deploy_to
from trt_spec.deploy.llmapi import resolve_llmapi_id, write_llmapi_repository
from trt_spec.deploy.ownership import MARKER_FILE
from trt_spec.deploy.pbtxt import parse_pbtxt
from trt_spec.errors import SpecError
from trt_spec.plan.workspace import Workspace
from trt_spec.spec.model import Spec

VERSIONS = ("1.0.0", "1.1.0", "1.2.1", "1.3.0rc3", "1.3.0rc24")
MODES = ("draft_target", "ngram", "eagle3", "mtp", "none")


def make(mode: str = "draft_target", version: str = "1.2.1", **sections: Any) -> Spec:
    values: dict[str, Any] = {
        "name": "pair",
        "backend": "llmapi",
        "tensorrt_llm": version,
        "hardware": {"gpu": "H100", "gpus": 4},
        "target": {"model": "/models/the big: one, 'quoted'"},
        "speculation": {"mode": mode},
        **sections,
    }
    if mode in ("draft_target", "eagle3"):
        values["draft"] = {"model": "owner/small"}
    return Spec.model_validate(values)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("version", VERSIONS)
def test_the_repository_of_every_mode_and_version(tmp_path: Path, version: str, mode: str) -> None:
    spec = make(mode, version)
    repository = write_llmapi_repository(spec, tmp_path / "repository")
    model = repository / "tensorrt_llm"
    config = parse_pbtxt((model / "config.pbtxt").read_text(encoding="utf-8"))
    template = load_llmapi_template(version).models["tensorrt_llm"]
    assert (config.inputs, config.outputs) == (template.inputs, template.outputs)
    assert (config.name, config.backend, config.decoupled, config.max_batch_size) == ("tensorrt_llm", "python", True, 0)
    document = yaml.safe_load((model / "1" / "model.yaml").read_text(encoding="utf-8"))
    assert (document["model"], document["backend"]) == (spec.target.model, "pytorch")
    assert ("speculative_config" in document) == (mode != "none")
    assert document["triton_config"]["decoupled"] == config.decoupled  # NVIDIA's model reads one, Triton the other
    assert (model / "1" / "model.py").read_text() == Path(llmapi_model.__file__).read_text()
    marker = json.loads((repository / MARKER_FILE).read_text())
    assert marker["backend"] == "llmapi" and "nothing was run" in marker["speculative_config"]["trust"]


def test_the_template_has_the_tensors_of_nvidias() -> None:
    template = load_llmapi_template("1.3.0rc3").models["tensorrt_llm"]
    assert (len(template.inputs), len(template.outputs)) == (17, 16)
    assert [tensor.name for tensor in template.inputs if not tensor.optional] == ["text_input"]
    assert load_llmapi_template("1.0.0").trust.startswith("derived for 1.0.0 from 1.3.0rc3")


def test_deploy_needs_no_build(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path / "new" / "workspace")
    repository = deploy_to(workspace, make(), "triton").repository
    assert repository == workspace.repository
    assert sorted(path.name for path in workspace.root.iterdir()) == ["compare", "repository", "triton"]
    assert deploy_to(workspace, make(version="1.3.0rc24"), "triton").repository == repository  # replaces its own


@pytest.mark.parametrize("mode", MODES)
def test_the_comparison_is_sound_shell(tmp_path: Path, mode: str) -> None:
    workspace = Workspace(tmp_path)
    deploy_to(workspace, make(mode), "triton")
    scripts = sorted((workspace.root / "compare").glob("*.sh"))
    assert [script.name for script in scripts] == ["trtllm-serve.sh", "vllm.sh"]
    subprocess.run([Path(sys.executable).with_name("shellcheck"), *scripts], check=True)
    assert all(os.access(script, os.X_OK) for script in scripts)
    config = yaml.safe_load((workspace.root / "compare" / "trtllm-serve.yaml").read_text())
    assert ("speculative_config" in config) == (mode != "none") and "triton_config" not in config


@pytest.mark.parametrize(("script", "program"), [("trtllm-serve.sh", "trtllm-serve"), ("vllm.sh", "vllm")])
def test_a_script_runs_its_program_from_anywhere(tmp_path: Path, script: str, program: str) -> None:
    deploy_to(Workspace(tmp_path / "a: work, space"), make(), "triton")
    bin_dir = tmp_path / "bin"
    bin_dir.mkdir()
    shown = bin_dir / program
    shown.write_text('#!/bin/sh\npwd\nfor word in "$@"; do printf "%s\\n" "$word"; done\n')
    shown.chmod(0o755)
    run = subprocess.run(
        [tmp_path / "a: work, space" / "compare" / script, "--more"],
        env={"PATH": f"{bin_dir}:/usr/bin:/bin"},
        cwd="/",
        capture_output=True,
        text=True,
        check=True,
    )
    lines = run.stdout.splitlines()
    assert lines[0] == str(tmp_path / "a: work, space" / "compare")
    assert "/models/the big: one, 'quoted'" in lines and lines[-1] == "--more"


def test_what_is_not_ours_is_not_replaced(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path)
    repository = deploy_to(workspace, make(), "triton").repository
    (repository / "tensorrt_llm" / "1" / "model.yaml").write_text("model: mine\n")
    with pytest.raises(SpecError, match="changed since trtspec wrote it"):
        deploy_to(workspace, make(), "triton")


def test_the_comparison_is_looked_at_before_the_repository_is_written(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path)
    repository = deploy_to(workspace, make(), "triton").repository
    before = (repository / MARKER_FILE).read_text()
    (tmp_path / "compare" / "vllm.sh").write_text("mine\n")
    with pytest.raises(SpecError, match=r"compare was changed.*vllm\.sh"):
        deploy_to(workspace, make("ngram"), "triton")
    assert (repository / MARKER_FILE).read_text() == before


def test_shellcheck_passes_a_model_that_looks_like_a_variable(tmp_path: Path) -> None:
    deploy_to(Workspace(tmp_path), make("none", target={"model": "/models/$HOME/`id`"}), "triton")
    checker = Path(sys.executable).with_name("shellcheck")
    subprocess.run([checker, *(tmp_path / "compare").glob("*.sh")], check=True)


def test_without_a_container_no_script_is_written(tmp_path: Path) -> None:
    """TensorRT-LLM after 1.2.1, whose spelling of speculation is reached in no other way."""
    place = Workspace(tmp_path / "work")
    for mode, spelled in (("draft_target", "Draft_Target"), ("eagle3", "Eagle3")):
        deployed = deploy_to(place, make(mode, "1.3.0rc24"), "triton")
        text = (deployed.repository / "tensorrt_llm" / "1" / "model.yaml").read_text()
        assert yaml.safe_load(text)["speculative_config"]["decoding_type"] == spelled
    assert (deployed.folder, deployed.files) == (None, ())
    assert "TensorRT-LLM 1.3.0rc24 needs an image of your own" in deployed.notes[0]
    assert sorted(path.name for path in place.root.iterdir()) == ["compare", "repository"]


def test_a_script_for_another_container_does_not_stay(tmp_path: Path) -> None:
    script = tmp_path / "triton" / "launch.sh"
    deploy_to(Workspace(tmp_path), make(), "triton")
    text = script.read_text()
    script.write_text("mine\n")
    marker = (tmp_path / "repository" / MARKER_FILE).read_text()
    for version in ("1.2.1", "1.3.0rc24"):
        with pytest.raises(SpecError, match=r"triton was changed.*launch\.sh"):
            deploy_to(Workspace(tmp_path), make("ngram", version), "triton")
    assert (tmp_path / "repository" / MARKER_FILE).read_text() == marker
    script.write_text(text)
    deploy_to(Workspace(tmp_path), make(version="1.3.0rc24"), "triton")
    assert not script.parent.exists()


def test_a_refused_placement_is_not_deployed(tmp_path: Path) -> None:
    spec = make("ngram", hardware={"gpu": "H100", "gpus": 2, "nodes": 2}, target={"model": "a/b", "tensor_parallel": 4})
    with pytest.raises(SpecError, match="one node only"):
        write_llmapi_repository(spec, tmp_path / "repository")
    assert list(tmp_path.iterdir()) == []


def test_the_id_follows_the_models_and_not_the_ports() -> None:
    assert resolve_llmapi_id(make()) == resolve_llmapi_id(make(serve={"http_port": 9000}))
    assert resolve_llmapi_id(make()) != resolve_llmapi_id(make("ngram"))
