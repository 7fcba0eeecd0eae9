"""`trtspec build`: runs the planned steps whose outputs are not there yet, and writes the workspace's manifest."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Literal, NamedTuple, NoReturn

from trt_spec import __version__
from trt_spec.build.tasks import ReportProgress, Schedule, run_tasks
from trt_spec.errors import SpecError
from trt_spec.plan.draft_lengths import default_draft_lengths
from trt_spec.plan.finding import Finding
from trt_spec.plan.manifest import EngineEntry, Manifest, render_manifest
from trt_spec.plan.workspace import Workspace
from trt_spec.spec.model import Role, Spec
from trt_spec.util.cache import resolve_cache_dir
from trt_spec.util.files import exclusive, remove_partial_files, write_text_atomic

Until = Literal["fetch", "convert", "build"]
STAGES: dict[str, Until] = {
    "fetch": "fetch",
    "convert": "convert",
    "quantize": "convert",
    "trtllm_build": "build",
    "onnx_engine": "build",
}
"""The stage that each kind of step belongs to, by the names of ``until``."""


@dataclass(frozen=True)
class BuildOptions:
    """``force`` makes everything again; ``cache_dir`` holds downloaded models and remembered digests.

    ``until`` ends after the last step of that stage. ``discard_checkpoint`` removes a converted checkpoint as soon as
    its engine is inspected. ``accept_derived`` allows TensorRT-LLM releases without a profile (backend engine).
    """

    spec: Spec
    workspace: Workspace
    force: bool = False
    cache_dir: Path | None = None
    until: Until = "build"
    discard_checkpoint: bool = False
    accept_derived: bool = False

    @property
    def cache(self) -> Path:
        return self.cache_dir or resolve_cache_dir()


class BuildResult(NamedTuple):
    """``manifest`` is None if the build ended before the engines; ``findings`` are what the steps reported."""

    manifest: Manifest | None
    ran: list[str]
    findings: tuple[Finding, ...] = ()


def run_build(options: BuildOptions, report: ReportProgress) -> BuildResult:
    """Makes what is missing: the manifest, and the ids of the steps that ran.

    Raises SpecError for models that cannot be built or do not belong together and EnvironmentMissing for a machine that
    cannot build them, both before anything is made; StepFailed for a step that ran and failed.
    """
    backend = options.spec.backend
    if backend == "llmapi":
        raise SpecError(
            "backend llmapi has no engines to build: its models are served from their Hugging Face checkpoints.",
            remedy="Go on with `trtspec deploy SPEC`.",
        )
    with _ending_on_termination():
        if backend == "engine":
            from trt_spec.build.engine.run import run_engine_build

            return run_engine_build(options, report)
        return _run_onnx_build(options, report)


def _run_onnx_build(options: BuildOptions, report: ReportProgress) -> BuildResult:
    from trt_spec.build.onnx.tasks import plan_onnx_tasks

    tasks, entries = plan_onnx_tasks(options.spec, options.workspace, options.cache, report)
    wanted = frozenset(task.id for task in tasks if STAGES[task.job.step.kind] == options.until)
    with locked_workspace(options.workspace, report):
        ran = run_tasks(Schedule(tasks, wanted, force=options.force, serial=True), report)
        if options.until != "build":
            return BuildResult(None, ran)
        return BuildResult(write_manifest(options, entries, default_draft_lengths(options.spec)), ran)


def write_manifest(
    options: BuildOptions, engines: Mapping[Role, EngineEntry], draft_len_by_running: tuple[int, ...]
) -> Manifest:
    """The workspace's manifest, left alone if it says the same already."""
    manifest = Manifest(
        trtspec=__version__,
        spec=options.spec,
        engines={str(role): entry for role, entry in engines.items()},
        draft_len_by_running=draft_len_by_running,
    )
    text, path = render_manifest(manifest), options.workspace.manifest
    remove_partial_files(path)
    if not path.is_file() or path.read_text(encoding="utf-8") != text:
        write_text_atomic(path, text)
    return manifest


@contextmanager
def locked_workspace(workspace: Workspace, report: ReportProgress) -> Iterator[int]:
    """The workspace for this build alone; a second one says that it waits, then finds what the first made.

    Gives the descriptor of the lock. Children that inherit it hold the workspace until they are gone, too.
    """
    workspace.root.mkdir(parents=True, exist_ok=True)

    def tell() -> None:
        report(f"waiting for another build in {workspace.root}", None)

    with exclusive(workspace.root, tell) as lock:
        yield lock


@contextmanager
def _ending_on_termination() -> Iterator[None]:
    """SIGTERM ends a build as Ctrl-C does, so that its children end and half-made folders go."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(_number: int, _frame: FrameType | None) -> NoReturn:
        raise KeyboardInterrupt

    previous = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)
