"""Findings about a model's config.pbtxt, at the line they are about, with the value that would be right there."""

from __future__ import annotations

from collections.abc import Sequence

from trt_spec.deploy.check.finding import CheckFinding, CheckSeverity, Fix
from trt_spec.deploy.check.view import ModelView

_MAX_NAMES = 12


def found(
    model: ModelView,
    where: tuple[str, ...],
    code: str,
    severity: CheckSeverity,
    what: str,
    why: str,
    remedy: str,
    becomes: str | None = None,
) -> CheckFinding:
    """A finding at the field ``where`` (words of ``ModelView.line_of``), or at what holds it if the field is absent.

    ``becomes`` is the only right value, which ``--fix`` may write.
    """
    lines = (model.line_of(*where[:length]) for length in range(len(where), 0, -1))
    fix = None if becomes is None else plan_value(model, where, becomes)
    return CheckFinding(code, severity, model.file, next(filter(None, lines), None), what, why, remedy, fix)


def found_parameter(
    model: ModelView,
    key: str,
    code: str,
    severity: CheckSeverity,
    what: str,
    why: str,
    remedy: str,
    becomes: str | None = None,
) -> CheckFinding:
    """A finding at a parameter's value, without a line if the parameter is absent."""
    fix = None if becomes is None else plan_value(model, ("parameters", key, "value", "string_value"), becomes)
    return CheckFinding(code, severity, model.file, model.line_of("parameters", key), what, why, remedy, fix)


def listed(names: Sequence[str]) -> str:
    """Names in a row, the first dozen of them; "none" if there are none."""
    more = f" and {len(names) - _MAX_NAMES} more" if len(names) > _MAX_NAMES else ""
    return (", ".join(names[:_MAX_NAMES]) or "none") + more


def plan_value(model: ModelView, where: tuple[str, ...], after: str) -> Fix | None:
    """The line of a scalar field with another value; None unless the field is there once and its value on one line."""
    nodes = model.lines.find(*where)
    if len(nodes) != 1 or nodes[0].value is None:
        return None
    return model.plan_fix(nodes[0].value_line, nodes[0].value, after)
