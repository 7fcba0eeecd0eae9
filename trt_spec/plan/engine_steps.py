"""The steps that make the TensorRT engines of a pair: fetch, convert or quantise, trtllm-build."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trt_spec.errors import SpecError
from trt_spec.plan.facts import ModelFacts
from trt_spec.plan.limits import EngineLimits
from trt_spec.plan.model_files import ModelFiles
from trt_spec.plan.source_quantization import UNQUANTISED, judge_source_quantization, resolve_source_quantization
from trt_spec.plan.steps import Step
from trt_spec.plan.toolchain import Profile
from trt_spec.plan.trtllm_argv import (
    CALIBRATION_SAMPLES,
    build_argv,
    convert_argv,
    fetch_argv,
    medusa_argv,
    plan_engine_flags,
    quantize_argv,
    resolve_dtype,
)
from trt_spec.plan.workspace import HEADS, Workspace
from trt_spec.spec.model import Model, Role, Spec
from trt_spec.spec.reference import judge_reference

PROCESS_FLAGS = ("workers", "log_level", "monitor_memory", "output_timing_cache")
"""Flags of trtllm-build that decide how it runs and not what it makes: no reason to build an engine again."""


def plan_engine_steps(
    spec: Spec,
    facts: Mapping[Role, ModelFacts],
    limits: Mapping[Role, EngineLimits],
    profile: Profile,
    workspace: Workspace,
    files: Mapping[Role, ModelFiles],
) -> tuple[Step, ...]:
    """All steps of backend engine in an order that can be run, the draft's first: it is the smaller one.

    A hub model is fetched into the workspace, once if both roles name the same one. ``files`` say whether the weights
    are quantised already: with ``quantization: fp8`` those are converted, others are quantised by NVIDIA's script.
    Raises SpecError for another backend, for stored weights that contradict the spec, and for wrong ``build_flags``.
    """
    _check(spec, files)
    steps: list[Step] = []
    fetched: dict[tuple[str, str | None], Path] = {}
    for role, model in reversed(spec.models().items()):
        key = (model.model, model.revision)
        if judge_reference(model.model) == "hub" and key not in fetched:
            fetched[key] = workspace.source(role)
            steps.append(_fetch(role, model, fetched[key]))
        heads = _plan_heads(spec, role, workspace)
        if heads is not None and heads.step is not None:
            steps.append(heads.step)
        steps.append(_checkpoint(role, model, facts[role], profile, workspace, files[role], fetched.get(key), heads))
        steps.append(_engine(spec, role, limits[role], facts[role], profile, workspace))
    return tuple(steps)


@dataclass(frozen=True)
class _Heads:
    """Medusa heads of a checkpoint: ``folder`` is where they lie, None in the target's own; ``step`` fetches them."""

    reference: str | None
    folder: str | None
    max_draft_len: int
    step: Step | None = None


def _plan_heads(spec: Spec, role: Role, workspace: Workspace) -> _Heads | None:
    speculation = spec.speculation
    if role != "target" or speculation.mode != "medusa":
        return None
    reference, length = speculation.heads, speculation.max_draft_len
    if reference is None or judge_reference(reference) == "folder":
        return _Heads(reference, reference, length)
    folder = workspace.source(HEADS)
    argv = fetch_argv(Model(model=reference), folder)
    step = Step(f"fetch-{HEADS}", "fetch", role, reference, {"revision": None}, argv, outputs=(folder,))
    return _Heads(reference, str(folder), length, step)


def _check(spec: Spec, files: Mapping[Role, ModelFiles]) -> None:
    if spec.backend != "engine":
        reason = "llmapi builds no engine" if spec.backend == "llmapi" else "onnx has steps of its own"
        raise SpecError(
            f"There are no TensorRT engine steps for backend {spec.backend}: {reason}.",
            remedy="Set `backend: engine` to plan engines.",
        )
    for finding in judge_source_quantization(spec, files):
        raise SpecError(finding.message, remedy=finding.remedy)


def _fetch(role: Role, model: Model, folder: Path) -> Step:
    return Step(
        id=f"fetch-{role}",
        kind="fetch",
        role=role,
        source=model.model,
        params={"revision": model.revision},
        argv=fetch_argv(model, folder),
        outputs=(folder,),
    )


def _checkpoint(
    role: Role,
    model: Model,
    facts: ModelFacts,
    profile: Profile,
    workspace: Workspace,
    files: ModelFiles,
    fetched: Path | None,
    heads: _Heads | None,
) -> Step:
    source, folder = str(fetched or model.model), workspace.checkpoint(role)
    params: dict[str, Any] = {
        "tensorrt_llm": profile.version,
        "dtype": resolve_dtype(model, facts),
        "quantization": model.quantization,
        "kv_cache_dtype": model.kv_cache_dtype,
        "tensor_parallel": model.tensor_parallel,
        "pipeline_parallel": model.pipeline_parallel,
    }
    if model.quantization == "fp8" and resolve_source_quantization(files) == UNQUANTISED:
        kind, params["calibration_samples"] = "quantize", CALIBRATION_SAMPLES
        argv = quantize_argv(model, facts, profile, source, folder)
    else:
        kind, params["dialect"] = "convert", profile.dialect
        medusa = () if heads is None else medusa_argv(heads.folder, heads.max_draft_len)
        argv = convert_argv(model, facts, profile, source, folder, medusa)
    if heads is not None:
        params["medusa"] = {"heads": heads.reference, "max_draft_len": heads.max_draft_len}
    # The demo model is no folder: the converter gets it by its reference.
    inputs = (Path(source),) if fetched or judge_reference(model.model) == "folder" else ()
    if heads is not None and heads.folder is not None:
        inputs = (*inputs, Path(heads.folder))
    return Step(f"{kind}-{role}", kind, role, model.model, params, argv, inputs, (folder,))


def _engine(
    spec: Spec, role: Role, limits: EngineLimits, facts: ModelFacts, profile: Profile, workspace: Workspace
) -> Step:
    checkpoint, folder = workspace.checkpoint(role), workspace.engine(role)
    flags = plan_engine_flags(spec, role, limits, facts, profile)
    return Step(
        id=f"engine-{role}",
        kind="trtllm_build",
        role=role,
        source=spec.models()[role].model,
        params={
            "tensorrt_llm": profile.version,
            "flags": {dest: list(words) for dest, words in flags.items() if dest not in PROCESS_FLAGS},
        },
        argv=build_argv(spec, role, limits, facts, profile, checkpoint, folder),
        inputs=(checkpoint,),
        outputs=(folder,),
    )
