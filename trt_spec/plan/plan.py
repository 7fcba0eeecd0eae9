"""The plan of a spec: what was found, what is derived, what it will cost and bring, and every step to take. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from trt_spec.plan.build_flags import judge_build_flags
from trt_spec.plan.draft_lengths import default_draft_lengths
from trt_spec.plan.engine_memory import Sizing
from trt_spec.plan.engine_steps import plan_engine_steps
from trt_spec.plan.facts import ModelFacts, resolve_facts
from trt_spec.plan.finding import Finding, is_refused
from trt_spec.plan.launch import Launch, plan_launch
from trt_spec.plan.limits import EngineLimits
from trt_spec.plan.llmapi import LlmapiPlan, plan_llmapi
from trt_spec.plan.llmapi_checks import check_llmapi_models
from trt_spec.plan.llmapi_launch import plan_llmapi_launch
from trt_spec.plan.medusa import MedusaPlan, check_heads, judge_medusa_plan, plan_medusa
from trt_spec.plan.memory import MemoryPlan, plan_memory
from trt_spec.plan.model_files import ModelFiles
from trt_spec.plan.pair import check_pair
from trt_spec.plan.placement import Placement, plan_placement
from trt_spec.plan.priors import Acceptance, choose_acceptance, given_acceptance
from trt_spec.plan.rope import check_rope
from trt_spec.plan.self_draft import SelfDraft, judge_self_draft, plan_self_draft, resolve_draft_files
from trt_spec.plan.shapes import check_shapes, check_stages
from trt_spec.plan.sizing import plan_sizing
from trt_spec.plan.source_quantization import judge_quantized_source, judge_source_quantization
from trt_spec.plan.speed import SpeedPrediction, judge_speed, predict, resolve_speed_inputs
from trt_spec.plan.steps import Step, plan_onnx_steps
from trt_spec.plan.toolchain import Profile, judge_derived, resolve_profile
from trt_spec.plan.trtllm_argv import resolve_dtype
from trt_spec.plan.workspace import Workspace
from trt_spec.spec.model import Role, Spec

SEVERITIES = ("refuse", "warn", "note")
_NOT_PREDICTED = (
    Finding(
        "speed-not-predicted",
        "note",
        "No speed is predicted: how much of an n-gram look-up is accepted depends on how far answers repeat their "
        "prompts.",
        "State speculation.acceptance, or measure it: `trtspec verify`, then `trtspec plan --report`.",
    ),
)


@dataclass(frozen=True)
class EnginePlan:
    """What backend engine adds: limits and placement of the engines, memory, speed and launch (None if refused).

    ``speed`` is None where nothing tells the acceptance: that of n-gram look-up depends on the text alone.
    ``medusa`` are the heads of the target with their tree and prediction; ``speed`` is then that of the target alone.
    """

    profile: Profile
    limits: Mapping[Role, EngineLimits]
    placement: Placement
    memory: MemoryPlan
    speed: SpeedPrediction | None
    launch: Launch | None
    medusa: MedusaPlan | None = None


@dataclass(frozen=True)
class LlmapiServing:
    """What backend llmapi adds: the arguments of TensorRT-LLM's LLM, and how Triton starts with it."""

    plan: LlmapiPlan
    launch: Launch


@dataclass(frozen=True)
class Plan:
    """``findings`` are ordered by severity; ``steps`` are empty when something refuses the build.

    ``self_draft`` is what a draft from the target's own weights costs and may bring.
    """

    spec: Spec
    files: Mapping[Role, ModelFiles]
    facts: Mapping[Role, ModelFacts]
    findings: tuple[Finding, ...]
    steps: tuple[Step, ...]
    engine: EnginePlan | None
    llmapi: LlmapiServing | None = None
    self_draft: SelfDraft | None = None

    @property
    def refused(self) -> bool:
        return is_refused(self.findings)

    @property
    def draft_len_by_running(self) -> tuple[int, ...]:
        """Draft length to start from at 1, 2, ... requests in flight, the last one for all beyond.

        Empty where the orchestrator drafts nothing.
        """
        if not self.spec.external_draft_len:
            return ()
        speed = None if self.engine is None else self.engine.speed
        return default_draft_lengths(self.spec) if speed is None else speed.draft_len_by_running


@dataclass(frozen=True)
class PlanOptions:
    """``measured_alpha`` is from a report of `trtspec verify`; ``accept_derived`` allows releases without a profile.

    ``heads`` are the files of the Medusa heads that the spec names.
    """

    workspace: Workspace
    measured_alpha: float | None = None
    accept_derived: bool = False
    heads: ModelFiles | None = None


def make_plan(spec: Spec, files: Mapping[Role, ModelFiles], options: PlanOptions) -> Plan:
    """Plans ``spec`` for models of which ``files`` are known. Raises SpecError for files that cannot be read."""
    if spec.backend == "llmapi":
        return _plan_llmapi(spec, files, options)
    findings = [
        finding for role, known in files.items() for finding in check_rope(known.config, spec.tensorrt_llm, role)
    ]
    if is_refused(tuple(findings)):  # facts of such a model cannot be resolved
        return Plan(spec, files, {}, _ordered(findings), (), None)
    target = resolve_facts(files["target"].config, source=_config_of(files["target"]))
    findings += judge_self_draft(spec, target.layers)
    if is_refused(tuple(findings)):  # there is no such draft
        return Plan(spec, files, {}, _ordered(findings), (), None)
    files = resolve_draft_files(spec, files)
    facts = {role: resolve_facts(known.config, source=_config_of(known)) for role, known in files.items()}
    findings += check_pair(spec, files["target"], files.get("draft", files["target"]))
    for role, model in spec.models().items():
        parallel = model.tensor_parallel, model.pipeline_parallel
        findings += check_shapes(facts[role], *parallel, role, spec.speculation.accept)
    if spec.backend == "onnx":
        return _plan_onnx(spec, files, facts, findings, options)
    return _plan_engine(spec, files, facts, findings, options)


def _plan_onnx(
    spec: Spec,
    files: Mapping[Role, ModelFiles],
    facts: Mapping[Role, ModelFacts],
    findings: list[Finding],
    options: PlanOptions,
) -> Plan:
    self_draft = plan_self_draft(spec, facts, options.measured_alpha)
    findings += judge_quantized_source(spec, files)
    findings += () if self_draft is None else self_draft.findings()
    steps = () if is_refused(tuple(findings)) else plan_onnx_steps(spec)
    return Plan(spec, files, facts, _ordered(findings), steps, None, self_draft=self_draft)


def _plan_llmapi(spec: Spec, files: Mapping[Role, ModelFiles], options: PlanOptions) -> Plan:
    facts, findings = check_llmapi_models(spec, files)
    plan = plan_llmapi(spec)
    serving = LlmapiServing(plan, plan_llmapi_launch(spec, str(options.workspace.repository)))
    return Plan(spec, files, facts, _ordered([*findings, *plan.findings]), (), None, serving)


def _plan_engine(
    spec: Spec,
    files: Mapping[Role, ModelFiles],
    facts: Mapping[Role, ModelFacts],
    findings: list[Finding],
    options: PlanOptions,
) -> Plan:
    profile = resolve_profile(spec.tensorrt_llm, options.accept_derived)
    findings += judge_derived(profile)
    findings += judge_source_quantization(spec, files)
    heads = None
    if spec.speculation.mode == "medusa":
        heads, found = check_heads(spec, files["target"], facts["target"], options.heads)
        findings += found
    for role, model in spec.models().items():
        findings += judge_build_flags(spec, role, profile)
        findings += check_stages(facts[role], model.pipeline_parallel, profile.dialect, role)
    if is_refused(tuple(findings)):  # sizes of shapes that cannot be split would mean nothing
        return Plan(spec, files, facts, _ordered(findings), (), None)
    placement, placing = plan_placement(spec)
    sizing, sizes = plan_sizing(spec, facts, profile, files, heads)
    memory = plan_memory(sizing, files)
    speed = _predict(spec, sizing, options)
    findings += (*placing, *sizes, *memory.findings, *(_NOT_PREDICTED if speed is None else judge_speed(speed)))
    dtype = resolve_dtype(spec.target, facts["target"])
    medusa = None if heads is None else plan_medusa(spec, facts["target"], heads, dtype)
    findings += () if medusa is None else judge_medusa_plan(medusa)
    refused = is_refused(tuple(findings))
    steps = () if refused else plan_engine_steps(spec, facts, sizing.limits, profile, options.workspace, files)
    repository, requests = str(options.workspace.repository), spec.limits.max_batch_size
    launch = None if refused else plan_launch(placement, repository, spec.serve, requests=requests)
    engine = EnginePlan(profile, sizing.limits, placement, memory, speed, launch, medusa)
    return Plan(spec, files, facts, _ordered(findings), steps, engine)


def _choose_acceptance(spec: Spec, sizing: Sizing, options: PlanOptions) -> Acceptance | None:
    """None for n-gram look-up unless it is given: what a look-up finds depends on the text, not on the model."""
    if spec.speculation.mode == "ngram":
        return given_acceptance(spec.speculation.acceptance, options.measured_alpha)
    facts = sizing.facts
    return choose_acceptance(
        facts.get("draft", facts["target"]).parameters,
        facts["target"].parameters,
        spec.limits.max_input_len,
        spec_alpha=spec.speculation.acceptance,
        measured_alpha=options.measured_alpha,
    )


def _predict(spec: Spec, sizing: Sizing, options: PlanOptions) -> SpeedPrediction | None:
    facts, limits = sizing.facts, sizing.limits
    acceptance = _choose_acceptance(spec, sizing, options)
    if acceptance is None:
        return None
    draft_limits = limits.get("draft")
    inputs = resolve_speed_inputs(
        spec,
        facts,
        sizing.gpu,
        acceptance,
        # Reuse of KV blocks is whole blocks: half a block is read anew in the middle of all cases.
        tail_tokens=limits["target"].tokens_per_block // 2,
        target_batch=limits["target"].effective_verify_batch,
        draft_batch=draft_limits.effective_verify_batch if draft_limits else None,
        gpu_hour_price=spec.hardware.gpu_hour_price if spec.hardware else None,
    )
    return predict(inputs)


def _ordered(findings: list[Finding]) -> tuple[Finding, ...]:
    unique = dict.fromkeys(findings)
    return tuple(sorted(unique, key=lambda finding: SEVERITIES.index(finding.severity)))


def _config_of(files: ModelFiles) -> str:
    folder = files.origin.removeprefix("local folder ")
    return str(Path(folder, "config.json")) if folder != files.origin else f"config.json of {files.reference}"
