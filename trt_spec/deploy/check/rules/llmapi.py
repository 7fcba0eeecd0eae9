"""model.yaml of Triton's LLM API model: how each version spells speculation, and what must stand in config.pbtxt too.

The names by version are those of plan/llmapi_dialect.json, which says how sure each is. TensorRT-LLM's own PyTorch path
refuses Medusa and lookahead (1.3.0rc3 llm_args.py) and does not speculate with pipeline parallelism (feature matrix).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from trt_spec.deploy.check.engine_config import section
from trt_spec.deploy.check.finding import CheckFinding, CheckSeverity
from trt_spec.deploy.check.kinds import find_kind
from trt_spec.deploy.check.reading import MAX_CONFIG_BYTES, FaultKind, ReadFault, read_text
from trt_spec.deploy.check.rules.report import found
from trt_spec.deploy.check.view import ModelView, RepositoryView
from trt_spec.deploy.parameter_names import LLMAPI_FILE
from trt_spec.deploy.repository import VERSION_FOLDER
from trt_spec.errors import SpecError
from trt_spec.plan.llmapi_dialect import (
    LlmapiDialect,
    judge_known_troubles,
    load_llmapi_dialect,
    load_llmapi_dialects,
)
from trt_spec.spec.yaml_lines import Document, MalformedYamlError, compose_document

REFUSED = {"medusa": "Medusa", "lookahead": "lookahead decoding"}
_DRAFT_FIELDS = ("speculative_model_dir", "speculative_model")  # the older one, which stays an alias


@dataclass(frozen=True)
class _Yaml:
    """One model.yaml: its path relative to the repository, and its content with lines."""

    model: ModelView
    file: str
    document: Document

    @property
    def values(self) -> Mapping[str, Any]:
        return section({"": self.document.data}, "")

    @property
    def speculation(self) -> Mapping[str, Any]:
        return section(self.values, "speculative_config")

    def fault(
        self, path: tuple[str, ...], code: str, severity: CheckSeverity, what: str, why: str, remedy: str
    ) -> CheckFinding:
        return CheckFinding(code, severity, self.file, self.document.line_of(path), what, why, remedy)


def check_model_yaml(view: RepositoryView) -> Iterator[CheckFinding]:
    """Everything about the model.yaml of each LLM API model."""
    version = view.meant.tensorrt_llm if view.meant is not None else None  # tensors tell nothing here
    for model in view.models.values():
        if find_kind(model) != "llmapi":
            continue
        file = f"{model.name}/{VERSION_FOLDER}/{LLMAPI_FILE}"
        text, fault = read_text(model.folder / VERSION_FOLDER / LLMAPI_FILE, MAX_CONFIG_BYTES)
        line = None
        try:
            document = compose_document(text)
        except (MalformedYamlError, RecursionError) as error:
            document = Document()
            fault, line = fault or ReadFault(FaultKind.CONTENT, str(error)), getattr(error, "line", None)
        read = _Yaml(model, file, document)
        if fault or not read.values:
            yield CheckFinding(
                "llmapi-yaml",
                "error",
                file,
                line,
                f"{file}: {fault or 'holds no settings'}",
                "the model reads everything about the LLM from it",
                "Write it again with `trtspec deploy`, or correct the line.",
            )
            continue
        yield from _check_transaction(read)
        yield from _check_speculation(read, version)
        yield from _check_troubles(read, version)


def _check_transaction(read: _Yaml) -> Iterator[CheckFinding]:
    stated, config = section(read.values, "triton_config").get("decoupled"), read.model.config
    if config is None or not isinstance(stated, bool) or stated == config.decoupled:
        return
    yield found(
        read.model,
        ("model_transaction_policy", "decoupled"),
        "llmapi-decoupled",
        "error",
        f"{read.model.name}: decoupled is {_word(config.decoupled)} in config.pbtxt and {_word(stated)} in {read.file}",
        "Triton started by NVIDIA's script takes it from config.pbtxt, the model from model.yaml",
        f"Set decoupled: {_word(stated)} in model_transaction_policy, or change model.yaml.",
    )


def _check_speculation(read: _Yaml, version: str | None) -> Iterator[CheckFinding]:
    kind, path = read.speculation.get("decoding_type"), ("speculative_config", "decoding_type")
    if not read.speculation or not isinstance(kind, str):
        return
    stages = read.values.get("pipeline_parallel_size")
    if isinstance(stages, int) and stages > 1:
        yield read.fault(
            ("pipeline_parallel_size",),
            "llmapi-pipeline",
            "error",
            f"{read.model.name}: pipeline_parallel_size is {stages} with decoding_type {kind[:40]}",
            "TensorRT-LLM's PyTorch path does not speculate across pipeline stages",
            "Set pipeline_parallel_size to 1 and raise tensor_parallel_size.",
        )
    if kind.lower() in REFUSED:
        yield read.fault(
            path,
            "llmapi-mode",
            "error",
            f"{read.model.name}: decoding_type is {kind}",
            f"TensorRT-LLM's PyTorch path refuses {REFUSED[kind.lower()]} itself",
            "Use a draft model, n-gram, EAGLE-3 or MTP, or serve an engine instead.",
        )
        return
    dialect = _find_dialect(version)
    if dialect is None:
        return
    mode = _modes().get(kind)
    wanted = dialect.decoding_types.get(mode or "", kind)
    if wanted != kind:
        # Up to 1.3.0rc3 the refusal of the other spelling was read in the source; later ones may have an alias.
        is_known = mode == "draft_target" and dialect.config_flag != "--config"
        yield read.fault(
            path,
            "llmapi-spelling",
            "error" if is_known else "warning",
            f"{read.model.name}: decoding_type is {kind}, TensorRT-LLM {version} spells it {wanted}",
            f"other spellings are refused as an invalid decoding type ({dialect.trust})",
            f"Set decoding_type: {wanted}.",
        )
    if mode == "draft_target":
        yield from _check_draft(read, dialect, version)


def _check_draft(read: _Yaml, dialect: LlmapiDialect, version: str | None) -> Iterator[CheckFinding]:
    named = [field for field in _DRAFT_FIELDS if read.speculation.get(field)]
    older, newer = _DRAFT_FIELDS
    if named and (dialect.draft_field == newer or older in named):
        return
    how = f"names it in {named[0]}" if named else "names no draft model"
    yield read.fault(
        ("speculative_config", *named),
        "llmapi-draft",
        "error",
        f"{read.model.name}: speculative_config {how}, TensorRT-LLM {version} reads {dialect.draft_field}",
        "a draft-target pair needs its draft",
        f"Set {dialect.draft_field} to the draft's checkpoint.",
    )


def _check_troubles(read: _Yaml, version: str | None) -> Iterator[CheckFinding]:
    """What is reported of this version, whatever the files say."""
    try:
        troubles = judge_known_troubles(version) if version is not None else ()
    except ValueError:
        return
    for trouble in troubles:
        yield read.fault((), trouble.code, "note", trouble.message.rstrip("."), "reported, not tried", trouble.remedy)


def _find_dialect(version: str | None) -> LlmapiDialect | None:
    try:
        return None if version is None else load_llmapi_dialect(version)
    except (SpecError, ValueError):
        return None


def _modes() -> dict[str, str]:
    """Modes by every spelling that any version has."""
    return {word: mode for dialect in load_llmapi_dialects() for mode, word in dialect.decoding_types.items()}


def _word(value: bool) -> str:
    return str(value).lower()


RULES = (check_model_yaml,)
