"""What the rules see: a repository read once, with every file that could not be read already reported."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from trt_spec.deploy.check.finding import Fix
from trt_spec.deploy.check.kinds import ModelKind, judge_kind, judge_ours
from trt_spec.deploy.check.options import CheckOptions
from trt_spec.deploy.check.pbtxt_lines import Lines
from trt_spec.deploy.dialect import Dialect
from trt_spec.deploy.pbtxt import ModelConfig


@dataclass(frozen=True)
class ModelView:
    """One model folder. ``config`` is None where config.pbtxt does not parse; ``text`` is empty where it is unreadable.

    ``file`` is that of config.pbtxt, relative to the checked path.
    """

    folder: Path
    name: str  # of the folder
    file: str
    text: str
    config: ModelConfig | None
    lines: Lines = field(default_factory=Lines)

    def line_of(self, *words: str) -> int | None:
        """Return the line (from 1) of a field, and with a second word that of the entry so named; None if absent.

        ``line_of("max_batch_size")``, ``line_of("input", "draft_logits")``: where its name stands;
        ``line_of("parameters", "gpt_model_path")``: where its string_value stands, and its key where it has none.
        """
        return self.lines.line_of(*words)

    @cached_property
    def kind(self) -> ModelKind:
        """What the model is for."""
        return judge_kind(self)

    @cached_property
    def is_ours(self) -> bool:
        """Whether it runs the orchestrator of trtspec."""
        return judge_ours(self)

    @cached_property
    def _rows(self) -> list[str]:
        return self.text.split("\n")

    def plan_fix(self, line: int | None, old: str, new: str) -> Fix | None:
        """Return the fix that puts ``new`` in place of ``old`` on a line; None unless ``old`` stands there once."""
        if line is None or not 1 <= line <= len(self._rows) or not old:
            return None
        before = self._rows[line - 1].removesuffix("\r")
        return Fix(line, before.replace(old, new)) if before.count(old) == 1 else None


@dataclass(frozen=True)
class EngineView:
    """The engine folder that a tensorrt_llm model names, as this machine sees it.

    ``named`` is the path as written, ``folder`` where it lies here after ``mounts``, None where it does not. ``config``
    is config.json, None where it is missing or unreadable, which ``fault`` then says.
    """

    model: str
    named: str
    folder: Path | None
    config: Mapping[str, Any] | None
    fault: str = ""


@dataclass(frozen=True)
class MeantVersion:
    """The TensorRT-LLM that somebody says it is for; ``how`` ends a sentence: "as trtspec.json says".

    ``is_stated`` if the user says so on the command line.
    """

    tensorrt_llm: str
    how: str
    is_stated: bool


@dataclass(frozen=True)
class RepositoryView:
    """A model repository. ``dialect`` is that of the stated or detected version; ``version_reason`` says which and why.

    ``is_guess`` if no recorded version fits, and the dialect is that of the closest.
    ``meant`` is the version that somebody names, None where engines or tensors had to tell. ``marker`` is trtspec.json,
    None in repositories of others. ``engines`` has an entry for every model of the tensorrtllm backend that names an
    engine, by model name.
    """

    root: Path
    models: Mapping[str, ModelView]
    dialect: Dialect
    version_reason: str
    meant: MeantVersion | None
    marker: Mapping[str, Any] | None
    engines: Mapping[str, EngineView]
    options: CheckOptions = field(default_factory=CheckOptions)
    is_guess: bool = False
