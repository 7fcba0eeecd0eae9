"""Repositories on disk, ours and NVIDIA's filled as its README says, with engine folders; tests break one place."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from trt_spec.deploy.check.finding import CheckFinding
from trt_spec.deploy.check.options import CheckOptions
from trt_spec.deploy.check.run import inspect_repository
from trt_spec.deploy.deployment import Deployment, EngineDeployment
from trt_spec.deploy.dialect import Dialect, ModelDialect, load_dialect
from trt_spec.deploy.pbtxt import (
    DynamicBatching,
    EnsembleStep,
    InstanceGroup,
    ModelConfig,
    parse_pbtxt,
    render_pbtxt,
)
from trt_spec.deploy.repository import write_repository

FIXTURES = Path(__file__).parents[3] / "fixtures"
TOKENIZER = FIXTURES / "tiny" / "tokenizer"
BATCH = 8


@dataclass
class Repository:
    """A repository on disk, what `check` says of it, and ``engines``, the folder of its engines target and draft."""

    root: Path
    engines: Path
    options: CheckOptions = field(default_factory=CheckOptions)

    def file(self, model: str) -> Path:
        return self.root / model / "config.pbtxt"

    def config(self, model: str) -> ModelConfig:
        return parse_pbtxt(self.file(model).read_text(encoding="utf-8"))

    def change(self, model: str, **fields: Any) -> None:
        """Replace fields of a model's typed configuration."""
        self.file(model).write_text(render_pbtxt(replace(self.config(model), **fields)), encoding="utf-8")

    def set(self, model: str, **parameters: str | None) -> None:
        """Replace parameters of a model; None removes one."""
        merged = {**self.config(model).parameters, **parameters}
        self.change(model, parameters={key: value for key, value in merged.items() if value is not None})

    def edit(self, model: str, old: str, new: str) -> int:
        """Replace a text that stands there once; return its line."""
        text = self.file(model).read_text(encoding="utf-8")
        assert text.count(old) == 1, (old, text.count(old))
        self.file(model).write_text(text.replace(old, new), encoding="utf-8")
        return text[: text.index(old)].count("\n") + 1

    def retype(self, model: str, dtype: str, names: tuple[str, ...]) -> None:
        """Give tensors of a model another type."""
        config = self.config(model)
        sides = {
            side: tuple(replace(row, dtype=dtype) if row.name in names else row for row in getattr(config, side))
            for side in ("inputs", "outputs")
        }
        self.change(model, **sides)

    def set_engine(self, role: str, *names: str, **values: Any) -> None:
        """Replace values in a section of an engine's config.json: set_engine("draft", "build_config", x=5)."""
        path = self.engines / role / "config.json"
        document = json.loads(path.read_text())
        section = document
        for name in names:
            section = section[name]
        section.update(values)
        path.write_text(json.dumps(document))

    def findings(self, *codes: str) -> list[CheckFinding]:
        """All findings, or those of some codes; each says what, why and what to do.

        Tests change files of ours, so that they differ from trtspec.json is not told.
        """
        report = inspect_repository(self.root, self.options)
        for finding in report.findings:
            assert finding.what and finding.why and finding.remedy, finding
        return [row for row in report.findings if row.code in codes or (not codes and row.code != "file-changed")]

    def find(self, code: str) -> CheckFinding:
        """The only finding with a code."""
        findings = self.findings(code)
        assert len(findings) == 1, findings or self.findings()
        return findings[0]

    def line(self, finding: CheckFinding) -> str:
        """The line that a finding points at."""
        assert finding.line is not None
        return (self.root / finding.file).read_text(encoding="utf-8").split("\n")[finding.line - 1]

    def apply(self, finding: CheckFinding) -> None:
        assert finding.fix is not None
        path = self.root / finding.file
        lines = path.read_text(encoding="utf-8").splitlines()
        lines[finding.fix.line - 1] = finding.fix.after
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")


@pytest.fixture
def engine_config() -> dict[str, Any]:
    """config.json of a target's engine, as trtllm-build leaves it."""
    document: dict[str, Any] = json.loads((FIXTURES / "engine_config.json").read_text(encoding="utf-8"))
    return document


@pytest.fixture
def engines(tmp_path: Path, engine_config: dict[str, Any]) -> Callable[[str], Path]:
    """engines(version) -> a folder with the engines `target` and `draft`; the rank files have no contents."""

    def write(version: str) -> Path:
        for role, more in (("target", {}), ("draft", {"max_draft_len": 0, "speculative_decoding_mode": 1})):
            folder = tmp_path / "engines" / role
            folder.mkdir(parents=True)
            build = {**engine_config["build_config"], **more}
            config = {**engine_config, "version": version, "build_config": build}
            (folder / "config.json").write_text(json.dumps(config))
            (folder / "rank0.engine").write_bytes(b"plan")
        return tmp_path / "engines"

    return write


@pytest.fixture
def ours(tmp_path: Path, engines: Callable[[str], Path]) -> Callable[..., Repository]:
    """ours(version) -> the repository that `trtspec deploy` writes for a pair."""

    def write(version: str = "1.2.1", **fields: Any) -> Repository:
        folder = engines(version)
        shutil.copytree(TOKENIZER, tmp_path / "tokenizer")
        deployment = Deployment(
            name="pair",
            id="0123",
            tensorrt_llm=version,
            target=EngineDeployment(str(folder / "target"), folder / "target", 1280, gpu_device_ids=(0,)),
            draft=EngineDeployment(str(folder / "draft"), folder / "draft", 1280, gpu_device_ids=(0,)),
            tokenizer_dir=tmp_path / "tokenizer",
            max_draft_len=4,
            max_input_len=100,
            max_output_len=50,
            max_seq_len=154,
            max_batch_size=BATCH,
            vocab_size=320,
            draft_vocab_size=320,
        )
        return Repository(write_repository(replace(deployment, **fields), tmp_path / "repository"), folder)

    return write


@pytest.fixture
def theirs(tmp_path: Path, engines: Callable[[str], Path]) -> Callable[..., Repository]:
    """theirs(version) -> NVIDIA's templates, filled with the values of its README for draft and target."""

    def write(version: str = "0.18.2") -> Repository:
        return _write_theirs(tmp_path, version, engines(version), has_draft=True)

    return write


@pytest.fixture
def nvidia(tmp_path: Path) -> Callable[..., Repository]:
    """nvidia(version) -> NVIDIA's templates of a recorded version, whose engines are on another machine."""

    def write(version: str = "0.18.2", has_draft: bool = False) -> Repository:
        return _write_theirs(tmp_path, version, Path("/engines"), has_draft)

    return write


def _write_theirs(folder: Path, version: str, engines: Path, has_draft: bool) -> Repository:
    shutil.copytree(TOKENIZER, folder / "tokenizer")
    for config in plan_theirs(load_dialect(version), engines, folder / "tokenizer", has_draft):
        code = folder / "repository" / config.name / "1"
        code.mkdir(parents=True)
        (code / ("model.py" if config.backend == "python" else ".tmp")).write_text("# code\n")
        (code.parent / "config.pbtxt").write_text(render_pbtxt(config), encoding="utf-8")
    return Repository(folder / "repository", engines)


def plan_theirs(dialect: Dialect, engines: Path, tokenizer: Path, has_draft: bool) -> Iterator[ModelConfig]:
    """The README's values (facts of NVIDIA's draft-target section); what it leaves out stays a placeholder."""
    engine = {
        "max_tokens_in_paged_kv_cache": "2560",
        "max_attention_window_size": "2560",
        "kv_cache_free_gpu_mem_fraction": "0.5",
        "exclude_input_in_output": "False",
        "enable_kv_cache_reuse": "True",
        "gpt_model_type": "inflight_fused_batching",
        "gpu_device_ids": "0",
    }
    calls = {"accumulate_tokens": "False", "tensorrt_llm_model_name": "tensorrt_llm"}
    roles = {"tensorrt_llm": "target"}
    if has_draft:
        roles["tensorrt_llm_draft"] = "draft"
        calls["tensorrt_llm_draft_model_name"] = "tensorrt_llm_draft"
    batching = DynamicBatching(preferred_batch_sizes=(BATCH,))
    for name, role in roles.items():
        filled = {**engine, "gpt_model_path": str(engines / role)}
        yield _fill(dialect.models["tensorrt_llm"], name, "tensorrtllm", filled, dynamic_batching=batching)
    yield _fill(dialect.models["tensorrt_llm_bls"], "tensorrt_llm_bls", "python", calls)
    for name in ("preprocessing", "postprocessing"):
        yield _fill(dialect.models[name], name, "python", {"tokenizer_dir": str(tokenizer)})
    steps = _plan_steps(dialect.models["ensemble"])
    yield _fill(dialect.models["ensemble"], "ensemble", "ensemble", {}, steps=steps)


def _fill(template: ModelDialect, name: str, backend: str, filled: dict[str, str], **more: Any) -> ModelConfig:
    return ModelConfig(
        name=name,
        backend=backend,
        max_batch_size=BATCH,
        inputs=template.inputs,
        outputs=template.outputs,
        parameters={**{key: f"${{{key}}}" for key in template.parameters}, **template.fixed_parameters, **filled},
        instance_group=InstanceGroup() if backend == "python" else None,
        **more,
    )


def _plan_steps(template: ModelDialect) -> tuple[EnsembleStep, ...]:
    """The recorded steps lack the maps that the templates write with a comma after the key: LoRA, guided decoding."""
    read = {tensor for step in template.steps for tensor in step["input_map"].values()}
    lost = {tensor.name: tensor.name for tensor in template.inputs if tensor.name not in read}
    return tuple(
        EnsembleStep(
            step["model_name"],
            {**step["input_map"], **(lost if step["model_name"] == "tensorrt_llm" else {})},
            step["output_map"],
        )
        for step in template.steps
    )
