"""What the rules see: a repository read once, with every file that could not be read already reported."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trt_spec.deploy.check.finding import Fix
from trt_spec.deploy.check.pbtxt_lines import Lines
from trt_spec.deploy.dialect import Dialect
from trt_spec.deploy.pbtxt import ModelConfig


@dataclass(frozen=True)
class CheckOptions:
    """What the user says about the place that the repository is meant for; None where it is not known."""

    tensorrt_llm: str | None = None
    image: str | None = None
    concurrency: int | None = None
    mounts: tuple[tuple[str, Path], ...] = ()  # path prefix in the container -> folder here
    visible_gpus: int | None = None
    compute_capability: str | None = None
    trust_remote_code: bool = False

    def locate(self, named: str) -> Path | None:
        """Return where a path of the repository lies on this machine: behind the longest matching mount, else as named.

        None for a relative path, which counts from wherever Triton is started, and for one that no file can have.
        """
        if not named.startswith("/") or "\0" in named:
            return None
        for prefix, here in sorted(self.mounts, key=lambda mount: len(mount[0]), reverse=True):
            inside = prefix.rstrip("/")
            if named == inside or named.startswith(f"{inside}/"):
                return here / named[len(inside) :].lstrip("/")
        return Path(named)


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

    def plan_fix(self, line: int | None, old: str, new: str) -> Fix | None:
        """Return the fix that puts ``new`` in place of ``old`` on a line; None unless ``old`` stands there once."""
        rows = self.text.split("\n")
        if line is None or not 1 <= line <= len(rows) or not old:
            return None
        before = rows[line - 1].removesuffix("\r")
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
class RepositoryView:
    """A model repository. ``dialect`` is that of the stated or detected version; ``version_reason`` says which and why.

    ``marker`` is trtspec.json, None in repositories of others. ``engines`` has an entry for every model of the
    tensorrtllm backend that names an engine, by model name.
    """

    root: Path
    models: Mapping[str, ModelView]
    dialect: Dialect
    version_reason: str
    marker: Mapping[str, Any] | None
    engines: Mapping[str, EngineView]
    options: CheckOptions = field(default_factory=CheckOptions)
