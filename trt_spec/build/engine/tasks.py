"""The planned steps of backend engine, ready to run: how each is made, and what decides that it must be made again.

A step's fingerprint takes in that of the step before it, so that all are known before anything runs, and a finished
engine stays finished without the checkpoint that it came from.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from trt_spec.build.digests import load_digests
from trt_spec.build.engine.convert import converter_version
from trt_spec.build.engine.make import Bench, make_checkpoint, make_converted, make_engine, make_source
from trt_spec.build.source.small_files import SOURCE_PATTERNS
from trt_spec.build.store import Job
from trt_spec.build.tasks import Make, ReportProgress, Task
from trt_spec.plan.fingerprint import resolve_fingerprint
from trt_spec.plan.plan import Plan
from trt_spec.plan.steps import Step
from trt_spec.spec.model import Role

STEP_VERSIONS = {"fetch": "1", "convert": "1", "quantize": "1", "trtllm_build": "1"}
"""Raised whenever the same parameters begin to give other outputs; part of every fingerprint."""

GPU_KINDS = ("quantize", "trtllm_build")


@dataclass(frozen=True)
class Sources:
    """Where each role's Hugging Face folder is, fetched already or not, and the cache that remembers digests.

    ``report`` is told what is read, ``heads`` is the folder of the target's Medusa heads.
    """

    folders: Mapping[Role, Path]
    cache_dir: Path
    report: ReportProgress
    heads: Path | None = None

    def heads_of(self, step: Step) -> Path | None:
        """The folder of the heads that a step reads."""
        return self.heads if "medusa" in step.params else None


def plan_engine_tasks(plan: Plan, sources: Sources, compute_capability: str, bench: Bench) -> list[Task]:
    """One task for every step of the plan, in its order."""
    assert plan.engine is not None
    costs = {cost.id: cost for cost in plan.engine.memory.steps}
    made_by: dict[Path, Task] = {}
    tasks = []
    for step in plan.steps:
        needed = [made_by[folder] for folder in step.inputs if folder in made_by]
        job = _plan_job(step, plan, sources, needed, compute_capability)
        task = Task(
            job,
            _maker(step, plan, sources, bench),
            needs=tuple(other.id for other in needed),
            is_resumable=step.kind in ("fetch", "convert"),
            gpus=frozenset(step_gpus(step, plan)),
            host_memory_bytes=costs[step.id].host_memory_bytes if step.id in costs else 0,
        )
        made_by[job.folder] = task
        tasks.append(task)
    return tasks


def step_gpus(step: Step, plan: Plan) -> tuple[int, ...]:
    """The GPUs of this host that a step uses, by nvidia-smi's index: a build runs on one node."""
    assert plan.engine is not None and plan.spec.hardware is not None
    if step.kind == "quantize":  # ModelOpt spreads the unquantised model over all it sees
        return tuple(range(plan.spec.hardware.gpus))
    if step.kind == "trtllm_build":
        return tuple(sorted(set(plan.engine.placement.roles[step.role].device_ids)))
    return ()


def _plan_job(step: Step, plan: Plan, sources: Sources, needed: list[Task], compute_capability: str) -> Job:
    assert plan.engine is not None
    profile = plan.engine.profile
    inputs = {task.id: task.job.fingerprint for task in needed}
    if step.kind in ("convert", "quantize"):
        for prefix, folder in _unfetched(step, sources, needed):
            files = sorted({file for pattern in SOURCE_PATTERNS for file in folder.glob(pattern)})
            read = load_digests(files, sources.cache_dir, lambda file: sources.report(f"reading {file}", None))
            inputs |= {f"{prefix}{name}": digest for name, digest in read.items()}
    tools = {"step": STEP_VERSIONS[step.kind]}
    if step.kind == "convert":
        tools["converter"] = converter_version()
    if step.kind in GPU_KINDS:
        tools |= {"tensorrt_llm": profile.version, "tensorrt": profile.tensorrt}
        tools["compute_capability"] = compute_capability
    params = {"model": step.source, **step.params} if step.kind == "fetch" else step.params
    fingerprint = resolve_fingerprint(step.kind, params, inputs, tools)
    return Job(step, step.outputs[0], inputs, tools, fingerprint)


def _unfetched(step: Step, sources: Sources, needed: list[Task]) -> list[tuple[str, Path]]:
    """The folders of models and heads that no step before this one makes: their files decide what comes out.

    In front of each what its files' names are told apart by.
    """
    made = {task.job.folder for task in needed}
    folders = (("", sources.folders[step.role]), ("heads/", sources.heads_of(step)))
    return [(prefix, folder) for prefix, folder in folders if folder is not None and folder not in made]


def _maker(step: Step, plan: Plan, sources: Sources, bench: Bench) -> Make:
    gpus = step_gpus(step, plan)
    if step.kind == "fetch":
        return partial(make_source, step, bench)
    if step.kind == "convert":
        return partial(make_converted, step, sources.folders[step.role], sources.heads_of(step))
    if step.kind == "quantize":
        return partial(make_checkpoint, step, sources.folders[step.role], gpus, bench)
    return partial(make_engine, step, plan, gpus, bench)
