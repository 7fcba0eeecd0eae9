"""Running steps: what is not finished is made, in the order that inputs allow, side by side where nothing collides.

Only what a wanted output needs is made: a finished engine asks for no checkpoint, so that one may be gone.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trt_spec.build.store import Job, is_finished, remove_resumable, run_step
from trt_spec.util.files import remove_leftovers

ReportProgress = Callable[[str, float | None], None]
"""Called with what is being done and the fraction done, None where it cannot be known. From several threads."""

_POLL_S = 0.2  # so that an interrupt is seen at once


@dataclass(frozen=True)
class Context:
    """What a step may use while it runs: where to report to, and whether to stop."""

    report: ReportProgress
    stop: threading.Event


Make = Callable[[Path, Context], Mapping[str, Any]]


@dataclass(frozen=True)
class Task:
    """A job and how to do it. ``needs`` are ids of steps whose outputs it reads.

    Two tasks run at the same time only if they share no GPU and their host memory fits together; a task without GPUs
    collides with none.
    """

    job: Job
    make: Make
    needs: tuple[str, ...] = ()
    is_resumable: bool = False
    gpus: frozenset[int] = frozenset()
    host_memory_bytes: int = 0

    @property
    def id(self) -> str:
        return self.job.step.id


@dataclass(frozen=True)
class Schedule:
    """``wanted`` are ids; ``serial`` runs one task after the other in their order; ``after`` is called with each made.

    ``host_memory_bytes`` bounds what runs side by side.
    """

    tasks: Sequence[Task]
    wanted: frozenset[str]
    force: bool = False
    serial: bool = False
    host_memory_bytes: int | None = None
    after: Callable[[Task], None] = field(default=lambda _task: None)


def find_missing(schedule: Schedule) -> list[Task]:
    """The tasks that must run, in their order: wanted ones that are not finished, and what they need."""
    by_id = {task.id: task for task in schedule.tasks}
    needed: set[str] = set()

    def demand(task: Task) -> None:
        if task.id in needed or (not schedule.force and is_finished(task.job.folder, task.job.fingerprint)):
            return
        needed.add(task.id)
        for name in task.needs:
            demand(by_id[name])

    for task in schedule.tasks:
        if task.id in schedule.wanted:
            demand(task)
    return [task for task in schedule.tasks if task.id in needed]


def run_tasks(schedule: Schedule, report: ReportProgress) -> list[str]:
    """Run what is missing; the ids of the tasks that ran, in their order.

    The first failure stops the others and is raised. An interrupt ends everything that was started before it goes on.
    """
    for task in schedule.tasks:  # of runs that were killed; what must run goes on in its own resumable folder
        remove_leftovers(task.job.folder)
        if is_finished(task.job.folder, task.job.fingerprint):
            remove_resumable(task.job.folder)
    missing = find_missing(schedule)
    context = Context(report, threading.Event())
    waiting = list(missing)
    running: dict[Future[None], Task] = {}
    workers = 1 if schedule.serial else max(len(missing), 1)
    with ThreadPoolExecutor(workers, thread_name_prefix="step") as pool:
        try:
            while waiting or running:
                for task in _startable(schedule, waiting, running.values()):
                    waiting.remove(task)
                    running[pool.submit(_run, task, context)] = task
                done, _ = wait(running, timeout=_POLL_S, return_when=FIRST_COMPLETED)
                for future in done:
                    task = running.pop(future)
                    future.result()
                    schedule.after(task)
        except BaseException:
            context.stop.set()
            raise
    return [task.id for task in missing]


def _run(task: Task, context: Context) -> None:
    run_step(task.job, lambda output: task.make(output, context), task.is_resumable)


def _startable(schedule: Schedule, waiting: Sequence[Task], running: Iterable[Task]) -> list[Task]:
    busy = list(running)
    chosen: list[Task] = []
    for task in waiting:
        unmade = {other.id for other in (*waiting, *busy)}
        if schedule.serial and (busy or chosen):
            break
        if not unmade & set(task.needs) and _fits(schedule, task, [*busy, *chosen]):
            chosen.append(task)
    return chosen


def _fits(schedule: Schedule, task: Task, busy: Sequence[Task]) -> bool:
    if any(task.gpus & other.gpus for other in busy):
        return False
    memory = sum(other.host_memory_bytes for other in busy) + task.host_memory_bytes
    return not busy or schedule.host_memory_bytes is None or memory <= schedule.host_memory_bytes
