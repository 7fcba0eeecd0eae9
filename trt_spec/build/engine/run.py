"""A build of backend engine: plan, check this machine, fetch, plan again with what arrived, then make the rest."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from trt_spec.build.engine.host import read_available_memory_bytes, read_gpus
from trt_spec.build.engine.make import Bench
from trt_spec.build.engine.preflight import check_disk, check_gpus, check_memory, check_mounts, check_shared_memory
from trt_spec.build.engine.tasks import GPU_KINDS, Sources, plan_engine_tasks
from trt_spec.build.engine.toolchain import remove_containers, resolve_toolchain
from trt_spec.build.run import STAGES, BuildOptions, BuildResult, locked_workspace, write_manifest
from trt_spec.build.source.medusa_heads import load_head_files
from trt_spec.build.source.model_files import load_model_files
from trt_spec.build.source.resolve import load_model_folder
from trt_spec.build.store import MANIFEST_FILE, load_record
from trt_spec.build.tasks import ReportProgress, Schedule, Task, find_missing, run_tasks
from trt_spec.errors import SpecError
from trt_spec.plan.engine_entry import resolve_engine_entry
from trt_spec.plan.engine_record import judge_files
from trt_spec.plan.finding import Finding
from trt_spec.plan.hardware import load_gpu
from trt_spec.plan.known_models import is_known_model
from trt_spec.plan.manifest import BuiltWith, EngineEntry
from trt_spec.plan.plan import Plan, PlanOptions, make_plan
from trt_spec.plan.workspace import HEADS
from trt_spec.spec.model import Role
from trt_spec.spec.reference import judge_reference


def load_plan(options: BuildOptions) -> Plan:
    """The plan of a spec, from what is known of its models; those that are fetched already are read from the workspace.

    Raises SpecError for a plan that cannot work.
    """
    spec = options.spec
    files = {}
    for role, model in spec.models().items():
        fetched = _fetched_folder(options, role)
        files[role] = (
            load_model_files(str(fetched), revision=None, cache_dir=options.cache, offline=True)
            if (fetched / MANIFEST_FILE).is_file()
            else load_model_files(
                model.model, revision=model.revision, cache_dir=options.cache, offline=is_known_model(model.model)
            )
        )
    heads = load_head_files(_heads_reference(options), cache_dir=options.cache)
    plan = make_plan(spec, files, PlanOptions(options.workspace, accept_derived=options.accept_derived, heads=heads))
    if plan.refused:
        first = plan.findings[0]
        raise SpecError(f"The plan cannot work: {first.message}", remedy=first.remedy)
    return plan


def _heads_reference(options: BuildOptions) -> str | None:
    """Medusa heads as the spec names them, or where they were fetched to."""
    fetched = options.workspace.source(HEADS)
    is_fetched = _heads_on_hub(options) and (fetched / MANIFEST_FILE).is_file()
    return str(fetched) if is_fetched else options.spec.speculation.heads


def _heads_on_hub(options: BuildOptions) -> bool:
    heads = options.spec.speculation.heads
    return heads is not None and judge_reference(heads) == "hub"


def run_engine_build(options: BuildOptions, report: ReportProgress) -> BuildResult:
    """Makes what is missing of both engines; raises as ``run_build`` says."""
    plan = load_plan(options)
    with locked_workspace(options.workspace, report) as lock:
        bench = Bench(options.workspace, lock)
        tasks = _plan_tasks(options, plan, bench, report)
        missing = find_missing(_schedule(options, tasks))
        _tell_damage(missing, report)
        _prepare(options, plan, missing, bench)
        fetches = [task for task in tasks if task.job.step.kind == "fetch" and task in missing]
        ran: list[str] = []
        if fetches:
            ran += run_tasks(
                replace(_schedule(options, fetches), wanted=frozenset(task.id for task in fetches)), report
            )
            # The models may be other than what was known of them.
            plan = load_plan(options)
            tasks = _plan_tasks(options, plan, bench, report)
        if options.until != "fetch":
            rest = _schedule(options, [_without_fetch(task) for task in tasks if not _is_fetch(task)])
            if fetches:
                _prepare(options, plan, find_missing(rest), bench)
            ran += run_tasks(rest, report)
        findings = _load_findings(tasks)
        if options.until != "build":
            return BuildResult(None, ran, findings)
        manifest = write_manifest(options, _load_entries(plan, tasks), plan.draft_len_by_running)
        return BuildResult(manifest, ran, findings)


def _is_fetch(task: Task) -> bool:
    return task.job.step.kind == "fetch"


def _without_fetch(task: Task) -> Task:
    """Fetched is fetched: with --force a second time would only cost hours."""
    return replace(task, needs=tuple(name for name in task.needs if not name.startswith("fetch-")))


def _plan_tasks(options: BuildOptions, plan: Plan, bench: Bench, report: ReportProgress) -> list[Task]:
    return plan_engine_tasks(plan, _sources(options, report), _compute_capability(options, bench), bench)


def _sources(options: BuildOptions, report: ReportProgress) -> Sources:
    folders: dict[Role, Path] = {}
    for role, model in options.spec.models().items():
        if judge_reference(model.model) == "hub":
            folders[role] = _fetched_folder(options, role)
        else:
            folders[role] = load_model_folder(
                model.model, cache_dir=options.cache, progress=lambda text: report(text, None)
            )
    named = options.spec.speculation.heads
    heads = options.workspace.source(HEADS) if _heads_on_hub(options) else None if named is None else Path(named)
    return Sources(folders, options.cache, report, heads)


def _fetched_folder(options: BuildOptions, role: Role) -> Path:
    """Both roles of one hub model share the draft's download."""
    spec, workspace = options.spec, options.workspace
    target, draft = spec.target, spec.draft
    is_shared = draft is not None and (target.model, target.revision) == (draft.model, draft.revision)
    return workspace.source("draft" if is_shared else role)


def _compute_capability(options: BuildOptions, bench: Bench) -> str:
    """By the spec's GPU, so that a finished build is known without asking the driver; seen for a generic one."""
    assert options.spec.hardware is not None
    planned = load_gpu(options.spec.hardware.gpu)
    if planned.name != "generic":
        return planned.sm
    bench.seen = bench.seen or read_gpus()
    return bench.seen[0].compute_capability if bench.seen else "none"


def _schedule(options: BuildOptions, tasks: Sequence[Task]) -> Schedule:
    return Schedule(
        tasks,
        frozenset(task.id for task in tasks if STAGES[task.job.step.kind] == options.until),
        force=options.force,
        serial=options.discard_checkpoint,  # one checkpoint at a time is what makes the peak lower
        host_memory_bytes=read_available_memory_bytes(),
        after=_discard if options.discard_checkpoint else lambda _task: None,
    )


def _discard(task: Task) -> None:
    """The checkpoint of an engine that was just published."""
    if task.job.step.kind == "trtllm_build":
        (checkpoint,) = task.job.step.inputs
        shutil.rmtree(checkpoint, ignore_errors=True)


def _prepare(options: BuildOptions, plan: Plan, missing: Sequence[Task], bench: Bench) -> None:
    """Check the machine for the steps that will run, the cheapest checks first; nothing is asked if none will."""
    assert plan.engine is not None
    if not missing:
        return
    ids = {task.id for task in missing}
    costs = [cost for cost in plan.engine.memory.steps if cost.id in ids]
    bench.memory = {cost.id: cost.host_memory_bytes for cost in costs}
    check_disk(costs, options.workspace.root, options.discard_checkpoint)
    check_memory(costs)
    kinds = {task.job.step.kind for task in missing}
    if not kinds & set(GPU_KINDS):
        return
    bench.seen = bench.seen or read_gpus()
    bench.toolchain = resolve_toolchain(plan.engine.profile, bench.seen, needs_quantizer="quantize" in kinds)
    check_gpus(plan, bench.seen, bench.toolchain)
    check_shared_memory(bench.toolchain, max(len(task.gpus) for task in missing))
    if bench.toolchain.runtime is not None:
        check_mounts([options.workspace.root, *_local_folders(options)])
        remove_containers(bench.toolchain.runtime, options.workspace.root)


def _local_folders(options: BuildOptions) -> list[Path]:
    models = (model.model for model in options.spec.models().values())
    return [Path(model) for model in models if judge_reference(model) == "folder"]


def _tell_damage(missing: Sequence[Task], report: ReportProgress) -> None:
    """Why an output that was complete once is made again: which file is gone, cut or too long."""
    for task in missing:
        folder = task.job.folder
        if not (folder / MANIFEST_FILE).is_file():
            continue
        record = load_record(folder)
        if record.get("fingerprint") == task.job.fingerprint:
            found = {file.name: file.stat().st_size for file in folder.iterdir() if file.is_file()}
            for finding in judge_files(record, found, task.job.step.role):
                report(f"{task.id}: {finding.message}", None)


def _load_findings(tasks: Sequence[Task]) -> tuple[Finding, ...]:
    """What was reported when the outputs that are there were made."""
    return tuple(
        Finding(**found)
        for task in tasks
        if (task.job.folder / MANIFEST_FILE).is_file()
        for found in load_record(task.job.folder).get("findings", ())
    )


def _load_entries(plan: Plan, tasks: Sequence[Task]) -> dict[Role, EngineEntry]:
    return {
        task.job.step.role: resolve_engine_entry(
            plan, task.job.step.role, task.job.fingerprint, _built_with(load_record(task.job.folder))
        )
        for task in tasks
        if task.job.step.kind == "trtllm_build"
    }


def _built_with(record: Mapping[str, object]) -> BuiltWith:
    toolchain, gpus, tools = record["toolchain"], record["gpus"], record["tools"]
    assert isinstance(toolchain, Mapping) and isinstance(gpus, Sequence) and isinstance(tools, Mapping)
    return BuiltWith(
        tensorrt_llm=toolchain["tensorrt_llm"],
        tensorrt=toolchain["tensorrt"],
        container=toolchain["container"],
        gpu=", ".join(dict.fromkeys(gpu["name"] for gpu in gpus)),
        compute_capability=tools["compute_capability"],
    )
