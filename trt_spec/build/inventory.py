"""What lies in a workspace: the outputs of steps, what killed runs left, and logs; and removing what nothing needs.

Only what trtspec itself wrote is ever listed for removal, and no symbolic link is followed: a linked folder is shown as
such and left alone, whatever it points to.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from trt_spec.build.store import MANIFEST_FILE, RESUME_SUFFIX
from trt_spec.errors import EnvironmentMissing, SpecError
from trt_spec.plan.steps import Step
from trt_spec.plan.workspace import HEADS, Workspace
from trt_spec.util.files import PARTIAL_SUFFIX, RETIRED_SUFFIX, exclusive, is_held

Kind = Literal["source", "checkpoint", "engine", "leftover", "log"]
State = Literal["current", "outdated", "unplanned", "kept", "foreign", "link", "left", "in use", "unfinished"]
"""Of a step's output: current (what the spec asks for), outdated (its place is asked for, with other parameters),
unplanned (no step makes it any more), kept (no step makes it, but one reads it), foreign (no manifest of ours). Of a
leftover: left, in use by a live process, or unfinished (the next build goes on with it or puts it back). Of a log:
kept, or left when old. Of anything: link."""

REMOVABLE: tuple[State, ...] = ("outdated", "unplanned", "left")
LEFTOVER_SUFFIXES = (PARTIAL_SUFFIX, RETIRED_SUFFIX, RESUME_SUFFIX)
LOG_AGE_DAYS = 30.0
DAY_S = 86400.0
ROLES = ("target", "draft", HEADS)
LOG_SUFFIXES = (".log", ".config.json")  # of a refused engine, its configuration lies beside the log


@dataclass(frozen=True)
class Output:
    """One folder or log file. ``fingerprint`` is None without a manifest; sizes in bytes, ages in seconds."""

    kind: Kind
    role: str | None
    path: Path
    fingerprint: str | None
    size_bytes: int
    age_s: float
    state: State

    @property
    def is_removable(self) -> bool:
        return self.state in REMOVABLE


def list_outputs(
    workspace: Workspace, steps: Sequence[Step], *, log_age_days: float = LOG_AGE_DAYS
) -> tuple[Output, ...]:
    """Everything in the workspace, judged by the ``steps`` that the current spec plans. Changes nothing.

    Raises SpecError where there is no workspace.
    """
    _check_exists(workspace)
    planned = {_place(workspace, step): step for step in steps}
    return (
        *_list_steps(workspace, planned, _find_inputs(steps)),
        *_list_leftovers(workspace, planned),
        *_list_logs(workspace, log_age_days),
    )


def prune_outputs(
    workspace: Workspace,
    steps: Sequence[Step],
    *,
    confirm: Callable[[tuple[Output, ...]], bool],
    log_age_days: float = LOG_AGE_DAYS,
) -> tuple[Output, ...]:
    """Remove what no step needs, once ``confirm`` has seen the list (which may be empty) and returned True.

    Gives what was removed. No build can run in between. Raises EnvironmentMissing while one does, and SpecError without
    steps: a plan that was refused has none, and is no reason to remove everything.
    """
    _check_exists(workspace)
    if not steps:
        raise SpecError(
            "The spec plans no steps, so that what it needs is not known.", remedy="See what `trtspec plan SPEC` says."
        )

    def refuse() -> None:
        raise EnvironmentMissing(
            f"A build is running in {workspace.root}.", remedy="Wait until it is done, or stop it, then prune again."
        )

    with exclusive(workspace.root, on_wait=refuse):
        doomed = tuple(
            output for output in list_outputs(workspace, steps, log_age_days=log_age_days) if output.is_removable
        )
        if not confirm(doomed) or not doomed:
            return ()
        for output in doomed:
            _remove(output)
    return doomed


def _check_exists(workspace: Workspace) -> None:
    if not workspace.root.is_dir():
        raise SpecError(f"{workspace.root} is no workspace: it does not exist.", remedy="Run `trtspec build` first.")


def _remove(output: Output) -> None:
    if output.kind == "log":
        output.path.unlink(missing_ok=True)
        return
    doomed = output.path
    if output.kind != "leftover":
        # A removal that is killed leaves a leftover, and nothing that looks whole.
        doomed = output.path.with_name(f".{output.path.name}.{secrets.token_hex(4)}{PARTIAL_SUFFIX}")
        output.path.rename(doomed)
    shutil.rmtree(doomed)


def _folders(workspace: Workspace) -> dict[Kind, Path]:
    """The folder that holds one folder a role, by what they are."""
    return {
        "source": workspace.source(ROLES[0]).parent,
        "checkpoint": workspace.checkpoint(ROLES[0]).parent,
        "engine": workspace.engine(ROLES[0]).parent,
    }


def _place(workspace: Workspace, step: Step) -> Path:
    """Where a step's output lies; an ONNX step does not say so itself."""
    return step.outputs[0] if step.outputs else workspace.engine(step.role)


def _find_inputs(steps: Sequence[Step]) -> frozenset[Path]:
    """Folders that steps read, whoever made them: a spec may name a model in a workspace."""
    sources = (Path(step.source) for step in steps if Path(step.source).is_absolute())
    return frozenset(path.resolve() for step in steps for path in step.inputs) | {path.resolve() for path in sources}


def _list_steps(workspace: Workspace, planned: Mapping[Path, Step], inputs: frozenset[Path]) -> Iterator[Output]:
    for kind, folder in _folders(workspace).items():
        if folder.is_symlink():
            yield _output(kind, None, folder, None, "link")
            continue
        for role in ROLES:
            path = folder / role
            if path.is_symlink():
                yield _output(kind, role, path, None, "link")
            elif path.is_dir():
                manifest = _load_manifest(path)
                is_read = path not in planned and path.resolve() in inputs
                state: State = "kept" if is_read else _judge(manifest, planned.get(path))
                yield _output(kind, role, path, manifest.get("fingerprint"), state)


def _judge(manifest: Mapping[str, Any], step: Step | None) -> State:
    """A step's identity here is what the spec decides; that its inputs changed is for the next build to find."""
    if not isinstance(manifest.get("fingerprint"), str):
        return "foreign"
    if step is None:
        return "unplanned"
    recorded = {key: manifest.get(key) for key in ("kind", "role", "source", "params")}
    wanted = {"kind": step.kind, "role": step.role, "source": step.source, "params": dict(step.params)}
    return "current" if recorded == json.loads(json.dumps(wanted)) else "outdated"


def _list_leftovers(workspace: Workspace, planned: Mapping[Path, Step]) -> Iterator[Output]:
    """Hidden folders of killed runs, and those of a run that is alive."""
    kinds = tuple(_folders(workspace).values())
    for folder in (workspace.root, *kinds):
        if folder.is_symlink() and folder != workspace.root:
            continue
        for path in sorted(folder.glob(".*.*")):
            if path.suffix in LEFTOVER_SUFFIXES and path.is_dir() and not path.is_symlink():
                destination = path.with_name(path.name[1:].rsplit(".", 2)[0])  # .NAME.0a1b2c3d.partial
                role = destination.name if folder in kinds and destination.name in ROLES else None
                yield _output("leftover", role, path, None, _judge_leftover(path, destination, planned))


def _judge_leftover(path: Path, destination: Path, planned: Mapping[Path, Step]) -> State:
    if is_held(path):
        return "in use"
    if path.suffix == RESUME_SUFFIX and destination in planned:
        return "unfinished"
    if path.suffix == RETIRED_SUFFIX and not destination.exists():
        return "unfinished"  # a previous version that was to be replaced, and nothing has replaced it
    return "left"


def _list_logs(workspace: Workspace, log_age_days: float) -> Iterator[Output]:
    folder = workspace.logs
    if folder.is_symlink() or not folder.is_dir():
        return
    for path in sorted(folder.iterdir()):
        if path.is_symlink() or not path.is_file() or not path.name.endswith(LOG_SUFFIXES):
            continue
        role = next((role for role in ROLES if role in re.split(r"[-.]", path.name)), None)
        log = _output("log", role, path, None, "kept")
        yield log if log.age_s <= log_age_days * DAY_S else _output("log", role, path, None, "left")


def _load_manifest(folder: Path) -> dict[str, Any]:
    path = folder / MANIFEST_FILE
    try:
        manifest = {} if path.is_symlink() else json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return manifest if isinstance(manifest, dict) else {}


def _output(kind: Kind, role: str | None, path: Path, fingerprint: object, state: State) -> Output:
    shown = fingerprint if isinstance(fingerprint, str) else None
    age_s = max(0.0, time.time() - path.lstat().st_mtime)
    return Output(kind, role, path, shown, 0 if state == "link" else measure_bytes(path), age_s, state)


def measure_bytes(path: Path) -> int:
    """The size of a file, or of all files below a folder; links count as links."""
    if not path.is_dir() or path.is_symlink():
        return path.lstat().st_size
    total = 0
    for parent, _, names in os.walk(path):  # does not follow links to folders
        for name in names:
            with contextlib.suppress(FileNotFoundError):  # a build may be at work
                total += Path(parent, name).lstat().st_size
    return total
