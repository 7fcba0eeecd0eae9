"""Whole repositories, ours and NVIDIA's filled as its README says, with engine folders; tests break one place."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from trt_spec.deploy.check.finding import CheckFinding
from trt_spec.deploy.check.load import load_repository
from trt_spec.deploy.check.rules import RULES
from trt_spec.deploy.check.view import CheckOptions
from trt_spec.deploy.deployment import Deployment, EngineDeployment
from trt_spec.deploy.dialect import Dialect, load_dialect
from trt_spec.deploy.pbtxt import (
    DynamicBatching,
    EnsembleStep,
    InstanceGroup,
    ModelConfig,
    parse_pbtxt,
    render_pbtxt,
)
from trt_spec.deploy.repository import write_repository

TOKENIZER = Path(__file__).parents[4] / "fixtures" / "tiny" / "tokenizer"
BATCH = 8
ENGINE_CONFIG: dict[str, Any] = {
    "version": "1.2.1",
    "pretrained_config": {
        "logits_dtype": "float32",
        "mapping": {"world_size": 1, "tp_size": 1, "pp_size": 1},
    },
    "build_config": {
        "max_batch_size": BATCH,
        "max_input_len": 100,
        "max_seq_len": 154,
        "max_draft_len": 0,
        "max_beam_width": 1,
        "speculative_decoding_mode": 1,
        "gather_generation_logits": True,
        "kv_cache_type": "paged",
        "plugin_config": {"use_paged_context_fmha": True, "remove_input_padding": True, "tokens_per_block": 32},
    },
}


@dataclass
class Repository:
    """A repository on disk. ``options`` are those of the command, ``engines`` the folders of target and draft."""

    root: Path
    engines: Path
    options: CheckOptions = field(default_factory=CheckOptions)

    def config(self, model: str) -> ModelConfig:
        return parse_pbtxt((self.root / model / "config.pbtxt").read_text(encoding="utf-8"))

    def change(self, model: str, **fields: Any) -> None:
        """Replace fields of a model's configuration."""
        text = render_pbtxt(replace(self.config(model), **fields))
        (self.root / model / "config.pbtxt").write_text(text, encoding="utf-8")

    def set(self, model: str, **parameters: str | None) -> None:
        """Replace parameters of a model; None removes one."""
        merged = {**self.config(model).parameters, **parameters}
        self.change(model, parameters={key: value for key, value in merged.items() if value is not None})

    def set_engine(self, role: str, *names: str, **values: Any) -> None:
        """Replace values in a section of an engine's config.json: set_engine("draft", "build_config", x=5)."""
        path = self.engines / role / "config.json"
        document = json.loads(path.read_text())
        section = document
        for name in names:
            section = section[name]
        section.update(values)
        path.write_text(json.dumps(document))

    def retype(self, model: str, dtype: str, names: tuple[str, ...]) -> None:
        """Give tensors of a model another type."""
        config = self.config(model)
        sides = {
            side: tuple(replace(row, dtype=dtype) if row.name in names else row for row in getattr(config, side))
            for side in ("inputs", "outputs")
        }
        self.change(model, **sides)

    def findings(self) -> list[CheckFinding]:
        view, unread = load_repository(self.root, self.options)
        assert not unread
        return [finding for rule in RULES for finding in rule(view)]

    def find(self, code: str) -> CheckFinding:
        """The only finding with a code; it must say everything that findings say."""
        matching = [finding for finding in self.findings() if finding.code == code]
        assert len(matching) == 1, self.findings()
        assert matching[0].what and matching[0].why and matching[0].remedy
        return matching[0]

    def line(self, finding: CheckFinding) -> str:
        """The line that a finding points at."""
        assert finding.line is not None
        return (self.root / finding.file).read_text(encoding="utf-8").splitlines()[finding.line - 1]

    def apply(self, finding: CheckFinding) -> None:
        assert finding.fix is not None
        path = self.root / finding.file
        lines = path.read_text(encoding="utf-8").splitlines()
        lines[finding.fix.line - 1] = finding.fix.after
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def write_engine(folder: Path, version: str, **build: Any) -> None:
    """An engine folder as trtllm-build leaves it, but for the contents of the rank files."""
    folder.mkdir(parents=True)
    config = {**ENGINE_CONFIG, "version": version, "build_config": {**ENGINE_CONFIG["build_config"], **build}}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "rank0.engine").write_bytes(b"plan")


@pytest.fixture
def engines(tmp_path: Path) -> Callable[[str], Path]:
    """engines(version) -> a folder with the engines `target` and `draft`."""

    def write(version: str) -> Path:
        folder = tmp_path / "engines"
        write_engine(folder / "target", version, max_draft_len=4, speculative_decoding_mode=2)
        write_engine(folder / "draft", version)
        return folder

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
        folder = engines(version)
        shutil.copytree(TOKENIZER, tmp_path / "tokenizer")
        for config in fill_templates(load_dialect(version), folder, tmp_path / "tokenizer"):
            code = tmp_path / "repository" / config.name / "1"
            code.mkdir(parents=True)
            if config.backend == "python":
                (code / "model.py").touch()
            (code.parent / "config.pbtxt").write_text(render_pbtxt(config), encoding="utf-8")
        return Repository(tmp_path / "repository", folder)

    return write


def fill_templates(dialect: Dialect, engines: Path, tokenizer: Path) -> Iterator[ModelConfig]:
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
    batching = DynamicBatching(preferred_batch_sizes=(BATCH,))
    for name, role in (("tensorrt_llm", "target"), ("tensorrt_llm_draft", "draft")):
        filled = {**engine, "gpt_model_path": str(engines / role)}
        yield _template(dialect, "tensorrt_llm", name, "tensorrtllm", filled, dynamic_batching=batching)
    calls = {
        "accumulate_tokens": "False",
        "tensorrt_llm_model_name": "tensorrt_llm",
        "tensorrt_llm_draft_model_name": "tensorrt_llm_draft",
    }
    steps = tuple(
        EnsembleStep(step["model_name"], step["input_map"], step["output_map"])
        for step in dialect.models["ensemble"].steps
    )
    yield _template(dialect, "tensorrt_llm_bls", "tensorrt_llm_bls", "python", calls)
    for name in ("preprocessing", "postprocessing"):
        yield _template(dialect, name, name, "python", {"tokenizer_dir": str(tokenizer)})
    yield _template(dialect, "ensemble", "ensemble", "ensemble", {}, steps=steps)


def _template(
    dialect: Dialect, recorded: str, name: str, backend: str, filled: dict[str, str], **more: Any
) -> ModelConfig:
    template = dialect.models[recorded]
    return ModelConfig(
        name=name,
        backend=backend,
        max_batch_size=BATCH,
        inputs=template.inputs,
        outputs=template.outputs,
        parameters={
            **{key: f"${{{key}}}" for key in template.parameters},
            **template.fixed_parameters,
            **filled,
        },
        instance_group=InstanceGroup() if backend == "python" else None,
        **more,
    )
