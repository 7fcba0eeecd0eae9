"""A built and deployed pair for GPUs, and a GPU host of stand-ins (tests/standins) that serves it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from trt_spec import __version__
from trt_spec.deploy.host.server import RunningServer, load_server, stop_triton
from trt_spec.deploy.workspace import deploy_workspace
from trt_spec.plan.manifest import BuiltWith, EngineEntry, Manifest, render_manifest
from trt_spec.plan.workspace import Workspace
from trt_spec.spec.load import load_spec

ROOT = Path(__file__).parents[3]
STANDINS = ROOT / "tests" / "standins"
TOKENIZER = ROOT / "tests" / "fixtures" / "tiny" / "tokenizer"
PROGRAMS = {
    "mpirun": "mpirun.py",
    "nvidia-smi": "nvidia_smi.py",
    "docker": "docker_serve.py",
    "tritonserver": "tritonserver.py",
    "triton_python_backend_stub": "idle.py",
    "trtllmExecutorWorker": "idle.py",
}
SPEC: dict[str, Any] = {
    "name": "pair",
    "backend": "engine",
    "tensorrt_llm": "1.2.1",
    "hardware": {"gpu": "H200", "gpus": 4},
    "target": {"model": "./target", "tensor_parallel": 2},
    "draft": {"model": "./draft", "gpus": [2]},
    "speculation": {"max_draft_len": 3},
    "limits": {"max_batch_size": 2, "max_input_len": 100, "max_output_len": 50},
}
BUILT_WITH = BuiltWith(
    tensorrt_llm="1.2.1", tensorrt="10.14.1.48", container=None, gpu="NVIDIA H200", compute_capability="9.0"
)


@dataclass
class Host:
    """A machine of stand-ins; ``bin`` holds its programs, ``workspace`` what is served."""

    monkeypatch: pytest.MonkeyPatch
    folder: Path
    workspace: Workspace
    ports: dict[str, int]
    bin: Path

    @property
    def spec_file(self) -> Path:
        return self.folder / "pair.yaml"

    def install(self, *names: str) -> None:
        """Scripts of the same names: a process then shows the name behind its interpreter's."""
        self.bin.mkdir(parents=True, exist_ok=True)
        for name in names:
            text = (STANDINS / PROGRAMS[name]).read_text()
            (self.bin / name).write_text(f"#!{sys.executable}\n{text}")
            (self.bin / name).chmod(0o755)
        shutil.copyfile(STANDINS / "calls.py", self.bin / "calls.py")

    def install_triton(self) -> None:
        """As in NVIDIA's container."""
        self.install("tritonserver", "triton_python_backend_stub", "trtllmExecutorWorker", "mpirun")
        (self.bin.parent / "backends" / "tensorrtllm").mkdir(parents=True)

    def set(self, **variables: Any) -> None:
        for name, value in variables.items():
            self.monkeypatch.setenv(f"STANDIN_{name.upper()}", value if isinstance(value, str) else json.dumps(value))

    def write(self, built_with: BuiltWith = BUILT_WITH, **sections: Any) -> None:
        """The spec, its build of empty engines, and its repository."""
        values = {**SPEC, "serve": self.ports}
        for name, section in sections.items():
            values[name] = {**values.get(name, {}), **section} if isinstance(section, dict) else section
        self.spec_file.write_text(yaml.safe_dump({key: value for key, value in values.items() if value is not None}))
        spec = load_spec(self.spec_file)
        entries = {}
        for role, model in spec.models().items():
            self._write_engine(role, model.tensor_parallel)
            entries[role] = EngineEntry(
                fingerprint=role, source="s", vocab_size=10, max_seq_len=153, max_draft_len=3,
                built_with=built_with, kv_cache_tokens=4096, logits_dtype="float32",
            )  # fmt: skip
        manifest = Manifest(trtspec=__version__, spec=spec, engines=entries)
        self.workspace.manifest.write_text(render_manifest(manifest))
        deploy_workspace(self.workspace, spec)

    def _write_engine(self, role: str, ranks: int) -> None:
        folder = self.workspace.engine(role)
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(TOKENIZER, folder)
        for rank in range(ranks):
            (folder / f"rank{rank}.engine").write_bytes(b"stand-in")
        files = {path.name: {"bytes": path.stat().st_size, "sha256": ""} for path in folder.iterdir()}
        (folder / "manifest.json").write_text(json.dumps({"files": files}))

    def serve(self, *arguments: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "trt_spec", "serve", str(self.spec_file), "-o", str(self.workspace.root)]
        return subprocess.Popen(
            [*command, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=self.folder
        )

    def server(self) -> RunningServer:
        server = load_server(self.workspace.root)
        assert server is not None
        return server

    def calls(self, program: str) -> list[list[str]]:
        lines = [json.loads(line) for line in (self.folder / "calls").read_text().splitlines()]
        return [line["argv"] for line in lines if line["program"] == program]


@pytest.fixture
def host(tmp_path: Path, free_ports: dict[str, int], monkeypatch: pytest.MonkeyPatch) -> Iterator[Host]:
    """Eight H200, and neither Triton nor docker; tests install them."""
    made = Host(monkeypatch, tmp_path, Workspace(tmp_path / "work"), free_ports, tmp_path / "triton" / "bin")
    made.workspace.root.mkdir()
    (tmp_path / "containers").mkdir()
    monkeypatch.setenv("PATH", f"{made.bin}{os.pathsep}/nowhere")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("TRTSPEC_CACHE", str(tmp_path / "cache"))
    for name in ("CUDA_VISIBLE_DEVICES", "NVIDIA_TRITON_SERVER_VERSION"):
        monkeypatch.delenv(name, raising=False)
    made.set(calls=str(tmp_path / "calls"), containers=str(tmp_path / "containers"))
    made.install("nvidia-smi")
    yield made
    stop_triton(made.workspace.root)
