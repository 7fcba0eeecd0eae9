"""Which TensorRT-LLM it is meant for: said by the user, by trtspec.json, by an engine, or by the tensors."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Mapping
from typing import Any

from trt_spec.deploy.check.kinds import find_dialect_name, find_kind, is_ours
from trt_spec.deploy.check.options import CheckOptions
from trt_spec.deploy.check.view import EngineView, MeantVersion, ModelView, RepositoryView
from trt_spec.deploy.dialect import RECORDED_VERSIONS, Dialect, ModelDialect, load_dialect, load_llmapi_template
from trt_spec.errors import SpecError
from trt_spec.plan.toolchain.containers import find_container
from trt_spec.serve.contract import TARGET_MODEL

_MOST_SLIPS = 8  # names that somebody may have misspelt, added or left out in templates of a recorded version
_VERSION = re.compile(r"\d+\.\d+")
load_recorded = functools.cache(load_dialect)  # a repository may have thousands of models


def resolve_meant(options: CheckOptions, marker: Mapping[str, Any] | None) -> MeantVersion | None:
    """Return the version that the user states, by itself or by a container that holds it, else that of trtspec.json.

    Raises SpecError for a statement that is neither.
    """
    stated = options.tensorrt_llm
    if stated is not None:
        container = find_container(stated)
        if container is not None:
            return MeantVersion(container.tensorrt_llm, f"which container {container.triton} holds", is_stated=True)
        if not _VERSION.match(stated):
            raise SpecError(
                f"{stated!r} is no version of TensorRT-LLM and no recorded Triton container.",
                remedy=f"Give the version that the container holds, such as {RECORDED_VERSIONS[-1]}.",
            )
        return MeantVersion(stated, "as stated", is_stated=True)
    marked = (marker or {}).get("tensorrt_llm")
    return MeantVersion(marked, "as trtspec.json says", is_stated=False) if isinstance(marked, str) else None


def resolve_version(
    meant: MeantVersion | None, engines: Mapping[str, EngineView], models: Iterable[ModelView]
) -> tuple[Dialect, str, bool]:
    """Return the dialect to check against, which it is, why, and how sure that is, and whether it is only the closest.

    Raises SpecError for a stated version that no recorded template stands for.
    """
    if meant is not None and meant.is_stated:
        return load_dialect(meant.tensorrt_llm), f"{meant.tensorrt_llm}, {meant.how}", False
    claims: list[tuple[str | None, str]] = [] if meant is None else [(meant.tensorrt_llm, meant.how)]
    claims += [(read_version(view), f"the engine of {view.model} was built with it") for view in engines.values()]
    for version, why in claims:
        if version is not None:
            try:
                return load_dialect(version), f"{version}, {why}", False
            except SpecError:
                continue  # no templates of that version: the tensors have to tell
    return _match_templates([model for model in models if _is_comparable(model)])


def find_template(view: RepositoryView, model: ModelView) -> ModelDialect | None:
    """Return the model of NVIDIA's templates that a model has to match in this version; None where there is none."""
    if find_kind(model) == "llmapi":
        return load_llmapi_template(RECORDED_VERSIONS[-1]).models.get(TARGET_MODEL)  # the only recorded one
    return view.dialect.models.get(find_dialect_name(model) or "")


def read_version(view: EngineView) -> str | None:
    """Return the TensorRT-LLM version that an engine's config.json records."""
    version = (view.config or {}).get("version")
    return version if isinstance(version, str) else None


def _is_comparable(model: ModelView) -> bool:
    """Our orchestrators declare tensors of every version, so they tell nothing."""
    return find_kind(model) not in ("other", "llmapi") and not is_ours(model)


def _match_templates(models: list[ModelView]) -> tuple[Dialect, str, bool]:
    if not models:
        newest = RECORDED_VERSIONS[-1]
        reason = f"{newest}, the newest recorded one: no model tells which it was written for"
        return load_dialect(newest), reason, False
    scored = []
    for age, version in enumerate(reversed(RECORDED_VERSIONS)):
        dialect = load_recorded(version)
        differences = [_count_differences(model, dialect) for model in models]
        wrong, unsaid = sum(pair[0] for pair in differences), sum(pair[1] for pair in differences)
        scored.append((wrong, unsaid, age, version, dialect))
    scored.sort(key=lambda row: row[:3])
    wrong, unsaid, _, version, dialect = scored[0]
    alike = [row[3] for row in scored[1:] if row[:2] == (wrong, unsaid)]
    also = f" (just as well {', '.join(alike)})" if alike else ""
    if not wrong:
        return dialect, f"{version}{also}: every tensor and parameter is that of its templates", False
    runner = next(row for row in scored[1:] if row[3] not in alike)
    return (
        dialect,
        f"{version}{also}, the closest of the recorded ones: {wrong} names differ from its templates, "
        f"{runner[0]} from those of {runner[3]}; state it with --tensorrt-llm to be sure",
        wrong > _MOST_SLIPS,
    )


def _count_differences(model: ModelView, dialect: Dialect) -> tuple[int, int]:
    """Names that are wrong or missing among the tensors, or unknown among the parameters; parameters left out."""
    template = dialect.models.get(find_dialect_name(model) or "")
    if template is None or model.config is None:
        return 0, 0
    found = {f"<{tensor.name}" for tensor in model.config.inputs} | {f">{row.name}" for row in model.config.outputs}
    known = {f"<{tensor.name}" for tensor in template.inputs} | {f">{row.name}" for row in template.outputs}
    parameters = template.parameters.keys() | template.fixed_parameters.keys()
    unknown = model.config.parameters.keys() - parameters
    return len(found ^ known) + len(unknown), len(parameters - model.config.parameters.keys())
