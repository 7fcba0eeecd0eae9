"""The steps of backend onnx, ready to run: one engine for each model of the pair."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trt_spec.build.digests import load_digests
from trt_spec.build.onnx.tools import resolve_tools
from trt_spec.build.source.resolve import load_model_folder
from trt_spec.build.source.shards import load_json_object
from trt_spec.build.source.small_files import SOURCE_PATTERNS
from trt_spec.build.store import Job
from trt_spec.build.tasks import Context, ReportProgress, Task
from trt_spec.errors import SpecError
from trt_spec.plan.facts import ModelFacts, resolve_facts
from trt_spec.plan.fingerprint import resolve_fingerprint
from trt_spec.plan.manifest import EngineEntry
from trt_spec.plan.self_draft import judge_self_draft
from trt_spec.plan.steps import Step, plan_onnx_steps
from trt_spec.plan.vocabulary import check_same_vocabulary, check_vocabulary_fits, load_vocabulary
from trt_spec.plan.workspace import Workspace
from trt_spec.spec.model import Role, Spec


def plan_onnx_tasks(
    spec: Spec, workspace: Workspace, cache_dir: Path, report: ReportProgress
) -> tuple[list[Task], dict[Role, EngineEntry]]:
    """Both engines, and what the workspace's manifest will say of them. Makes the demo model if it is named."""
    models = spec.models()
    folders = {  # one checkpoint may serve both roles
        reference: load_model_folder(reference, cache_dir=cache_dir, progress=lambda text: report(text, None))
        for reference in dict.fromkeys(model.model for model in models.values())
    }
    sources = {role: folders[model.model] for role, model in models.items()}
    facts = {source: _load_facts(source) for source in dict.fromkeys(sources.values())}
    _check_pair(sources, facts)
    _check_layers(spec, facts[sources["target"]])
    tasks: list[Task] = []
    entries: dict[Role, EngineEntry] = {}
    for step in plan_onnx_steps(spec):
        job = _plan_job(step, sources[step.role], workspace, cache_dir)
        tasks.append(Task(job, _maker(step, sources[step.role])))
        entries[step.role] = _entry(step, facts[sources[step.role]], job.fingerprint)
    return tasks, entries


def _load_facts(source: Path) -> ModelFacts:
    config_file = source / "config.json"
    return resolve_facts(load_json_object(config_file), source=str(config_file))


def _check_pair(sources: Mapping[Role, Path], facts: Mapping[Path, ModelFacts]) -> None:
    vocabularies = {source: load_vocabulary(source) for source in facts}
    for source, vocabulary in vocabularies.items():
        check_vocabulary_fits(vocabulary, facts[source].vocab_size, source)
    if "draft" in sources:
        check_same_vocabulary(vocabularies[sources["target"]], vocabularies[sources["draft"]])


def _check_layers(spec: Spec, target: ModelFacts) -> None:
    for finding in judge_self_draft(spec, target.layers):
        raise SpecError(finding.message, remedy=finding.remedy)


def _plan_job(step: Step, source: Path, workspace: Workspace, cache_dir: Path) -> Job:
    files = sorted({file for pattern in SOURCE_PATTERNS for file in source.glob(pattern)})
    inputs, tools = load_digests(files, cache_dir), resolve_tools()
    fingerprint = resolve_fingerprint(step.kind, step.params, inputs, tools)
    return Job(step, workspace.engine(step.role), inputs, tools, fingerprint)


def _maker(step: Step, source: Path) -> Any:
    def make(partial: Path, context: Context) -> Mapping[str, Any]:
        # Imported here: a build with nothing to make does not wait for onnx to load.
        from trt_spec.build.onnx.engine import write_engine

        def tell(done: float) -> None:
            if context.stop.is_set():
                raise KeyboardInterrupt
            context.report(f"building the {step.role} engine", done)

        write_engine(source, step.params, partial, tell)
        return {}

    return make


def _entry(step: Step, facts: ModelFacts, fingerprint: str) -> EngineEntry:
    return EngineEntry(
        fingerprint=fingerprint,
        source=step.source,
        vocab_size=facts.vocab_size,
        max_seq_len=step.params["max_seq_len"],
        max_draft_len=step.params["max_draft_len"],
    )
