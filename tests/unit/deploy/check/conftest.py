"""NVIDIA's templates of every recorded version, filled as its README says; tests break one place of them."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from trt_spec.deploy.check.finding import CheckFinding
from trt_spec.deploy.check.run import check_repository
from trt_spec.deploy.check.view import CheckOptions
from trt_spec.deploy.dialect import Dialect, ModelDialect, load_dialect
from trt_spec.deploy.pbtxt import EnsembleStep, InstanceGroup, ModelConfig, parse_pbtxt, render_pbtxt

TOKENIZER = Path(__file__).parents[3] / "fixtures" / "tiny" / "tokenizer"
FILLED = {"gpt_model_type": "inflight_fused_batching", "gpt_model_path": "/engines/target"}


@dataclass
class Checked:
    """A repository on disk, and what `check` says of it."""

    root: Path
    options: CheckOptions = field(default_factory=CheckOptions)

    def file(self, model: str) -> Path:
        return self.root / model / "config.pbtxt"

    def change(self, model: str, **fields: Any) -> None:
        """Replace fields of a model's typed configuration."""
        config = parse_pbtxt(self.file(model).read_text(encoding="utf-8"))
        self.file(model).write_text(render_pbtxt(replace(config, **fields)), encoding="utf-8")

    def config(self, model: str) -> ModelConfig:
        return parse_pbtxt(self.file(model).read_text(encoding="utf-8"))

    def edit(self, model: str, old: str, new: str) -> int:
        """Replace a text that stands there once; return its line."""
        text = self.file(model).read_text(encoding="utf-8")
        assert text.count(old) == 1, (old, text.count(old))
        self.file(model).write_text(text.replace(old, new), encoding="utf-8")
        return text[: text.index(old)].count("\n") + 1

    def findings(self, *codes: str) -> list[CheckFinding]:
        """All findings, or those of some codes; each says what, why and what to do."""
        report = check_repository(self.root, self.options)
        for finding in report.findings:
            assert finding.what and finding.why and finding.remedy, finding
        return [finding for finding in report.findings if not codes or finding.code in codes]

    def find(self, code: str) -> CheckFinding:
        findings = self.findings(code)
        assert len(findings) == 1, findings or self.findings()
        return findings[0]


@pytest.fixture
def nvidia(tmp_path: Path) -> Callable[..., Checked]:
    """nvidia(version) -> NVIDIA's repository of a recorded version, typed here and written through protobuf."""

    def make(version: str = "0.18.2", has_draft: bool = False) -> Checked:
        root = tmp_path / "nvidia"
        tokenizer = tmp_path / "tokenizer"
        if not tokenizer.exists():
            shutil.copytree(TOKENIZER, tokenizer)
        for config in plan_nvidia(load_dialect(version), str(tokenizer), has_draft):
            version_folder = root / config.name / "1"
            version_folder.mkdir(parents=True)
            (root / config.name / "config.pbtxt").write_text(render_pbtxt(config), encoding="utf-8")
            (version_folder / ("model.py" if config.backend == "python" else ".tmp")).write_text("# code\n")
        return Checked(root)

    return make


def plan_nvidia(dialect: Dialect, tokenizer: str, has_draft: bool) -> list[ModelConfig]:
    configs = []
    for name, template in dialect.models.items():
        filled = {**FILLED, "tokenizer_dir": tokenizer} if name != "preprocessing" else {"tokenizer_dir": tokenizer}
        is_ensemble = bool(template.steps)
        parameters = {key: filled.get(key, f"${{{key}}}") for key in template.parameters}
        config = ModelConfig(
            name=name,
            backend="ensemble" if is_ensemble else "tensorrtllm" if name == "tensorrt_llm" else "python",
            max_batch_size=4,
            inputs=template.inputs,
            outputs=template.outputs,
            parameters={**parameters, **template.fixed_parameters},
            instance_group=None if is_ensemble else InstanceGroup(),
            steps=_plan_steps(template),
        )
        configs.append(config)
        if name == "tensorrt_llm" and has_draft:
            draft = {**parameters, "gpt_model_path": "/engines/draft", "enable_kv_cache_reuse": "true"}
            configs.append(replace(config, name="tensorrt_llm_draft", parameters=draft))
        if name == "tensorrt_llm_bls" and has_draft:
            names = {"tensorrt_llm_model_name": "tensorrt_llm", "tensorrt_llm_draft_model_name": "tensorrt_llm_draft"}
            configs[-1] = replace(config, parameters={**config.parameters, **names})
    return configs


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
