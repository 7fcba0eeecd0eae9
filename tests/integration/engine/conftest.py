"""A tiny pair for backend engine, and a machine of stand-ins (tests/standins) to build it on."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from click.testing import CliRunner, Result

from trt_spec.build.source.medusa_heads import HEADS_NAME
from trt_spec.cli.main import main
from trt_spec.plan.facts import resolve_facts
from trt_spec.plan.medusa_heads import MedusaHeads, head_tensors
from trt_spec.plan.workspace import Workspace
from trt_spec.util.safetensors_header import render_header

ROOT = Path(__file__).parents[3]
STANDINS = ROOT / "tests" / "standins"
PROGRAMS = {"trtllm-build": "trtllm_build.py", "docker": "docker.py", "nvidia-smi": "nvidia_smi.py"}
VERSIONS = ("0.17.0", "0.18.2", "1.2.1")
SPEC: dict[str, Any] = {
    "name": "tiny",
    "backend": "engine",
    "hardware": {"gpu": "H200", "gpus": 4},
    "target": {"model": "", "tensor_parallel": 2},
    "draft": {"model": "", "gpus": [2]},
    "speculation": {"max_draft_len": 4},
    "limits": {"max_batch_size": 4, "max_input_len": 64, "max_output_len": 60},
    "build_flags": {"target": {"workers": 1}},  # planned with 4 GiB of host memory each
}


@dataclass
class Machine:
    """A host of stand-ins; ``workspace`` is where it builds."""

    monkeypatch: pytest.MonkeyPatch
    folder: Path
    models: Path
    workspace: Workspace

    def install_programs(self, *names: str) -> None:
        bin_folder = self.folder / "bin"
        bin_folder.mkdir(exist_ok=True)
        for name in names:
            file = bin_folder / name
            file.write_text(f'#!/bin/sh\nexec {sys.executable} {STANDINS / PROGRAMS[name]} "$@"\n')
            file.chmod(0o755)

    def install_tensorrt_llm(self, version: str) -> None:
        """The package as importlib.metadata sees it, and its program."""
        site = self.folder / "site"
        info = site / f"tensorrt_llm-{version}.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: tensorrt-llm\nVersion: {version}\n")
        self.monkeypatch.syspath_prepend(str(site))
        self.monkeypatch.setenv("PYTHONPATH", f"{site}{os.pathsep}{ROOT}")
        self.monkeypatch.setenv("STANDIN_VERSION", version)
        self.install_programs("trtllm-build")

    def set(self, **variables: Any) -> None:
        for name, value in variables.items():
            text = value if isinstance(value, str) else json.dumps(value)
            self.monkeypatch.setenv(f"STANDIN_{name.upper()}", text)

    def unset(self, name: str) -> None:
        self.monkeypatch.delenv(f"STANDIN_{name.upper()}")

    def write_spec(self, version: str = "1.2.1", **sections: Any) -> Path:
        values: dict[str, Any] = {**SPEC, "tensorrt_llm": version}
        for role in ("target", "draft"):
            values[role] = {**SPEC[role], "model": str(self.models / role)}
        for name, section in sections.items():
            values[name] = {**values.get(name, {}), **section} if isinstance(section, dict) else section
        path = self.folder / "tiny.yaml"
        path.write_text(yaml.safe_dump(values))
        return path

    def build(self, spec: Path, *arguments: str) -> Result:
        return CliRunner().invoke(main, ["build", str(spec), "-o", str(self.workspace.root), *arguments])

    def start(self, spec: Path, *arguments: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "trt_spec", "build", str(spec), "-o", str(self.workspace.root), *arguments]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=ROOT)

    def calls(self, program: str | None = None) -> list[dict[str, Any]]:
        file = self.folder / "calls"
        lines = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
        return [line for line in lines if program in (None, line["program"])]

    def forget_calls(self) -> None:
        (self.folder / "calls").unlink(missing_ok=True)

    def record(self, role: str, kind: str = "engine") -> dict[str, Any]:
        folder = self.workspace.engine(role) if kind == "engine" else self.workspace.checkpoint(role)
        return json.loads((folder / "manifest.json").read_text())

    def hidden(self) -> list[Path]:
        """Half-made folders and files below the workspace."""
        return list(self.workspace.root.rglob(".*"))

    def outputs(self) -> dict[str, bytes]:
        """Every file that a build makes, but for manifests (they hold times) and logs."""
        files = [path for name in ("checkpoints", "engines") for path in (self.workspace.root / name).rglob("*")]
        root = self.workspace.root
        return {
            str(path.relative_to(root)): path.read_bytes()
            for path in files
            if path.is_file() and path.name != "manifest.json"
        }


@pytest.fixture
def machine(tmp_path: Path, tiny_models: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    """A host with eight H200 and nothing else; tests add docker or TensorRT-LLM."""
    made = Machine(monkeypatch, tmp_path, tiny_models, Workspace(tmp_path / "work"))
    containers = tmp_path / "containers"
    containers.mkdir()
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}/usr/bin{os.pathsep}/bin")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("TRTSPEC_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("HF_TOKEN", raising=False)
    made.set(calls=str(tmp_path / "calls"), containers=str(containers))
    made.install_programs("nvidia-smi")
    return made


@pytest.fixture(params=VERSIONS)
def version(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def native(machine: Machine) -> Machine:
    """The same host with TensorRT-LLM 1.2.1 installed."""
    machine.install_tensorrt_llm("1.2.1")
    return machine


@pytest.fixture
def container(machine: Machine) -> Machine:
    """The same host with docker; the tools are inside the image only."""
    machine.install_programs("docker", "trtllm-build")
    return machine


@pytest.fixture
def write_heads() -> Callable[[Path, Path], None]:
    """write_heads(folder, model) -> three random Medusa heads for the model in ``folder``."""

    def write(folder: Path, model: Path) -> None:
        facts = resolve_facts(json.loads((model / "config.json").read_text()), source=str(model))
        rows = [(name, "F16", shape) for name, shape, _ in head_tensors(MedusaHeads(3, 1), facts)]
        numbers = np.random.default_rng(5)
        data = b"".join(numbers.normal(0, 0.1, shape).astype("<f2").tobytes() for _, _, shape in rows)
        folder.mkdir()
        (folder / HEADS_NAME).write_bytes(render_header(rows) + data)
        (folder / "config.json").write_text(json.dumps({"medusa_num_heads": 3, "medusa_num_layers": 1}))

    return write
