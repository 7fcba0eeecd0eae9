"""Inputs and outputs of every model against NVIDIA's template of the version, and against Triton's own rules.

Sources: the recorded dialects; triton-inference-server/core model_config_utils.cc (ValidateIOShape).
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from trt_spec.deploy.check.finding import CheckFinding, CheckSeverity
from trt_spec.deploy.check.kinds import find_kind, is_ours
from trt_spec.deploy.check.rules.called_tensors import Needed, find_needed
from trt_spec.deploy.check.rules.report import listed
from trt_spec.deploy.check.version import find_template, load_recorded
from trt_spec.deploy.check.view import ModelView, RepositoryView
from trt_spec.deploy.dialect import RECORDED_VERSIONS, ModelDialect
from trt_spec.deploy.parameter_names import TRITON_DTYPES
from trt_spec.deploy.pbtxt import ModelConfig, Tensor
from trt_spec.deploy.repository import ADDED_INPUTS, ADDED_OUTPUTS

OPEN_DTYPES = tuple(TRITON_DTYPES.values())  # what a template's open type may be filled with


@dataclass(frozen=True)
class _Side:
    """The inputs or the outputs of one model, as written and as the version's template has them."""

    word: str  # "input" or "output", as config.pbtxt spells the field
    model: ModelView
    found: Sequence[Tensor]
    expected: dict[str, Tensor]
    added: dict[str, Tensor]  # those of trtspec, which are welcome anywhere
    open_names: frozenset[str]
    version: str
    needed: frozenset[str]  # by those who call the model
    is_stated: bool  # by the user, not found out
    is_guess: bool  # no recorded version fits, and this one is the closest

    def report(
        self, code: str, severity: CheckSeverity, name: str, what: str, why: str, remedy: str, field: str = ""
    ) -> CheckFinding:
        words = (self.word, name, field) if field else (self.word, name)
        line = self.model.line_of(*words) or self.model.line_of(self.word, name)
        return CheckFinding(code, severity, self.model.file, line, f"{self.word} {name} {what}", why, remedy)


def check_against_template(view: RepositoryView) -> Iterator[CheckFinding]:
    """Names, types, shapes and what is optional, as the version's template says."""
    needed = find_needed(view)
    for model in view.models.values():
        template = find_template(view, model)
        if model.config is None or template is None:
            continue
        for side in _sides(model, model.config, template, view, needed):
            yield from _check_missing(side)
            for tensor in side.found:
                expected = side.expected.get(tensor.name) or side.added.get(tensor.name)
                if expected is None:
                    yield _unknown(side, tensor.name, template.name)
                else:
                    yield from _check_tensor(side, tensor, expected)


def check_by_itself(view: RepositoryView) -> Iterator[CheckFinding]:
    """What Triton refuses in any model: tensors without type or shape, empty shapes without batching, a name twice."""
    for model in view.models.values():
        if model.config is None:
            continue
        for word, tensors in (("input", model.config.inputs), ("output", model.config.outputs)):
            by_name: dict[str, list[Tensor]] = {}
            for tensor in tensors:
                by_name.setdefault(tensor.name, []).append(tensor)
            for name, rows in by_name.items():
                if len(rows) > 1:
                    yield _twice(model, word, name, is_same=all(row == rows[0] for row in rows))
                fault = _judge_shape(rows[0], model.config.max_batch_size)
                if fault:
                    yield CheckFinding(
                        "tensor-invalid",
                        "error",
                        model.file,
                        model.line_of(word, name) or model.line_of(word),
                        f"{word} {name or 'without a name'} {fault}",
                        "Triton refuses the model",
                        f"Write {word} {name} as the template of TensorRT-LLM {view.dialect.recorded} has it.",
                    )


def _sides(
    model: ModelView, config: ModelConfig, template: ModelDialect, view: RepositoryView, needed: Needed
) -> Iterator[_Side]:
    names = frozenset(template.open_dtypes)
    is_open = find_kind(model) in ("orchestrator", "ensemble")
    for word, found, expected, added in (
        ("input", config.inputs, template.inputs, ADDED_INPUTS),
        ("output", config.outputs, template.outputs, ADDED_OUTPUTS),
    ):
        extra = {tensor.name: tensor for tensor in added} if is_open else {}
        known = {tensor.name: tensor for tensor in expected}
        is_stated = view.meant is not None and view.meant.is_stated
        called = needed.get((model.name, word), frozenset())
        yield _Side(word, model, found, known, extra, names, view.dialect.recorded, called, is_stated, view.is_guess)


def _check_missing(side: _Side) -> Iterator[CheckFinding]:
    """One finding for all: a template of another version lacks a dozen."""
    names = {tensor.name for tensor in side.found}
    missing = [tensor for name, tensor in side.expected.items() if name not in names]
    added = side.added.items() if is_ours(side.model) else ()
    own = [tensor for name, tensor in added if name not in names and name not in side.expected]
    called = [row.name for row in (*missing, *own) if row.name in side.needed]
    required = [row.name for row in missing if side.word == "input" and not row.optional and row.name not in called]
    others = [row.name for row in (*missing, *own) if row.name not in (*required, *called)]
    why_others = "requests that bring them are refused" if side.word == "input" else "clients cannot ask for them"
    groups: tuple[tuple[list[str], CheckSeverity, str], ...] = (
        (required, "warning" if side.is_guess else "error", "the model needs them in every request"),
        (called, "error", "a model of this repository or its clients use them, and such calls fail"),
        (others, "warning", why_others),
    )
    for group, severity, why in groups:
        if group:
            yield CheckFinding(
                "tensor-missing",
                severity,
                side.model.file,
                side.model.line_of(side.word),
                f"{side.model.name} lacks {side.word} {listed(group)} of TensorRT-LLM {side.version}",
                why,
                "Add them; or leave --tensorrt-llm out, and the tensors tell the version."
                if side.is_stated
                else "Add them, or state the version that the repository is for with --tensorrt-llm.",
            )


def _unknown(side: _Side, name: str, dialect_name: str) -> CheckFinding:
    names = _recorded_names(dialect_name, side.word)
    known = [version for version, row in names if name in row]
    since = f"; {known[0]} has it" if len(known) == 1 else f"; {known[0]} to {known[-1]} have it" if known else ""
    verb = "is ignored there" if side.word == "input" else "is never written there"
    own = "; your own code may use it" if is_ours(side.model) or find_kind(side.model) != "engine" else ""
    return side.report(
        "tensor-unknown",
        "warning",
        name,
        f"is unknown to {dialect_name} of TensorRT-LLM {side.version}{since}",
        f"an unknown {side.word} {verb}{own}",
        f"Remove it, or state the version that the repository is for: --tensorrt-llm {known[-1] if known else 'V'}.",
    )


@functools.cache
def _recorded_names(dialect_name: str, word: str) -> tuple[tuple[str, frozenset[str]], ...]:
    """The inputs or outputs of a model in each recorded version."""
    models = [(version, load_recorded(version).models.get(dialect_name)) for version in RECORDED_VERSIONS]
    return tuple(
        (version, frozenset(row.name for row in (model.inputs if word == "input" else model.outputs)))
        for version, model in models
        if model is not None
    )


def _check_tensor(side: _Side, found: Tensor, expected: Tensor) -> Iterator[CheckFinding]:
    allowed = OPEN_DTYPES if found.name in side.open_names else (expected.dtype,)
    name, version = found.name, side.version
    if found.dtype not in allowed:
        wanted = " or ".join(f"TYPE_{dtype}" for dtype in allowed)
        yield side.report(
            "tensor-dtype",
            "warning" if side.is_guess else "error",
            name,
            f"has data_type TYPE_{found.dtype}, TensorRT-LLM {version} has {wanted}",
            "the values would be read as something else, or refused",
            f"Set data_type: {wanted}.",
            "data_type",
        )
    for field, has, wants in (
        ("dims", list(found.dims), list(expected.dims)),
        ("reshape", _as_list(found.reshape), _as_list(expected.reshape)),
    ):
        if has != wants:
            yield side.report(
                "tensor-shape",
                "warning" if side.is_guess else "error",
                name,
                f"has {field} {has}, TensorRT-LLM {version} has {wants}",
                "requests would be refused, or reach the model in a shape that it does not expect",
                f"Set {field} to {wants}.",
                field,
            )
    if side.word == "input" and found.optional != expected.optional:
        says, wants_optional = str(found.optional).lower(), str(expected.optional).lower()
        why = "the model fails without it" if found.optional else "requests without it are refused"
        yield side.report(
            "tensor-optional",
            "warning",
            name,
            f"has optional: {says}, TensorRT-LLM {version} has {wants_optional}",
            why,
            f"Set optional: {wants_optional}.",
            "optional",
        )
    if side.word == "input" and expected.ragged and not found.ragged:
        yield side.report(
            "tensor-ragged",
            "warning",
            name,
            f"lacks allow_ragged_batch: true, which TensorRT-LLM {version} has",
            "requests of different lengths cannot be in one batch",
            "Set allow_ragged_batch: true.",
        )


def _judge_shape(tensor: Tensor, max_batch_size: int) -> str:
    if not tensor.name:
        return "has no name"
    if tensor.dtype == "INVALID":
        return "has no data_type"
    if not tensor.dims:
        return "has no dims"
    if any(dim < 1 and dim != -1 for dim in (*tensor.dims, *(tensor.reshape or ()))):
        return (
            f"has a dimension that is neither -1 nor at least 1 in dims {list(tensor.dims)}, reshape {tensor.reshape}"
        )
    if tensor.reshape == () and max_batch_size == 0:
        return "is reshaped to nothing, which only a batching model may have, and max_batch_size is 0"
    return ""


def _twice(model: ModelView, word: str, name: str, *, is_same: bool) -> CheckFinding:
    lines = [node.line for node in model.lines.find(word, name)]
    return CheckFinding(
        "tensor-twice",
        "note" if is_same else "error",
        model.file,
        lines[-1] if lines else None,
        f"{word} {name} is declared more than once",
        "the templates of 0.19.0 and 1.3.0rc3 do so as well" if is_same else "the declarations contradict each other",
        f"Remove the other declarations of {name}.",
    )


def _as_list(shape: tuple[int, ...] | None) -> list[int] | None:
    return None if shape is None else list(shape)


RULES = (check_against_template, check_by_itself)
