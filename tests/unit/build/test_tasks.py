"""Order, collisions and failures of steps, with steps that only write a file."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from trt_spec.build.store import Job, is_finished, load_record
from trt_spec.build.tasks import Schedule, Task, find_missing, run_tasks
from trt_spec.errors import StepFailed
from trt_spec.plan.steps import Step


def quiet(_text: str, _fraction: float | None) -> None: ...


@pytest.fixture
def make_task(tmp_path: Path):
    def make_one(name: str, work=None, **settings) -> Task:
        def make(output: Path, _context) -> dict:
            output.mkdir(exist_ok=True)
            (output / "file").write_text(name)
            return (work(output) if work else None) or {}

        step = Step(name, "kind", "target", "source", {})
        return Task(Job(step, tmp_path / name, {}, {}, f"fingerprint of {name}"), make, **settings)

    return make_one


def schedule(*tasks: Task, wanted=None, **settings) -> Schedule:
    return Schedule(tasks, frozenset(wanted or {task.id for task in tasks}), **settings)


def test_a_finished_output_asks_for_nothing_before_it(make_task, tmp_path):
    first, second = make_task("first"), make_task("second", needs=("first",))
    plan = schedule(first, second, wanted={"second"})
    assert run_tasks(plan, quiet) == ["first", "second"]
    (tmp_path / "first" / "file").unlink()
    assert run_tasks(plan, quiet) == []
    (tmp_path / "second" / "file").write_text("longer than it was")
    assert [task.id for task in find_missing(plan)] == ["first", "second"]


def test_a_step_waits_for_what_it_reads(make_task, tmp_path):
    first = make_task("first")
    second = make_task("second", lambda _: {"saw": (tmp_path / "first" / "file").read_text()}, needs=("first",))
    run_tasks(schedule(second, first), quiet)
    assert load_record(tmp_path / "second")["saw"] == "first"


def meeting(parties: int, timeout_s: float):
    barrier = threading.Barrier(parties)

    def work(_output) -> None:
        barrier.wait(timeout_s)

    return work


def test_steps_on_other_gpus_run_side_by_side(make_task):
    work = meeting(2, 30)
    tasks = make_task("a", work, gpus=frozenset({0})), make_task("b", work, gpus=frozenset({1}))
    assert run_tasks(schedule(*tasks), quiet) == ["a", "b"]


@pytest.mark.parametrize(
    ("first", "second", "settings"),
    [
        ({"gpus": frozenset({0})}, {"gpus": frozenset({0, 1})}, {}),
        ({"host_memory_bytes": 6}, {"host_memory_bytes": 5}, {"host_memory_bytes": 10}),
        ({}, {}, {"serial": True}),
    ],
)
def test_steps_that_collide_run_one_after_the_other(make_task, first, second, settings):
    work = meeting(2, 0.3)
    tasks = make_task("a", work, **first), make_task("b", work, **second)
    with pytest.raises(threading.BrokenBarrierError):
        run_tasks(schedule(*tasks, **settings), quiet)


def test_the_first_failure_counts_and_stops_the_others(make_task, tmp_path):
    def fail(_output) -> None:
        raise StepFailed("it broke")

    seen = threading.Event()

    def stopped(output: Path, context) -> dict:
        output.mkdir(exist_ok=True)
        assert context.stop.wait(30)
        seen.set()
        raise KeyboardInterrupt

    slow = make_task("slow")
    tasks = (Task(slow.job, stopped), make_task("bad", fail), make_task("later", needs=("bad",)))
    with pytest.raises(StepFailed, match="it broke"):
        run_tasks(schedule(*tasks), quiet)
    assert seen.is_set()
    assert list(tmp_path.iterdir()) == []


def test_a_resumable_step_goes_on_in_its_folder_and_replaces_other_ones(make_task, tmp_path):
    visits = []

    def work(output: Path) -> dict:
        visits.append(sorted(path.name for path in output.iterdir()))
        (output / "half").write_text("half")
        if len(visits) == 1:
            raise StepFailed("cut off")
        return {}

    task = make_task("source", work, is_resumable=True)
    stale = tmp_path / ".source.0123456789ab.resume"
    stale.mkdir()
    with pytest.raises(StepFailed):
        run_tasks(schedule(task), quiet)
    assert not stale.exists() and not task.job.folder.exists()
    assert run_tasks(schedule(task), quiet) == ["source"]
    assert visits == [["file"], ["file", "half"]]
    assert is_finished(task.job.folder, task.job.fingerprint)
    assert [path.name for path in tmp_path.iterdir()] == ["source"]


def test_a_manifest_that_a_kill_cut_short_is_no_part_of_the_step(make_task, tmp_path):
    def work(output):
        (output / ".manifest.json.0a1b2c3d.partial").write_text("{")
        raise StepFailed("killed")

    with pytest.raises(StepFailed):
        run_tasks(schedule(make_task("source", work, is_resumable=True)), quiet)
    run_tasks(schedule(make_task("source", is_resumable=True)), quiet)
    assert {path.name for path in (tmp_path / "source").iterdir()} == {"file", "manifest.json"}
    assert list(load_record(tmp_path / "source")["files"]) == ["file"]


def test_an_output_that_was_killed_before_its_rename_is_only_renamed(make_task, tmp_path, monkeypatch):
    from trt_spec.build import store

    task = make_task("source", is_resumable=True)
    monkeypatch.setattr(store, "publish_directory", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        run_tasks(schedule(task), quiet)
    monkeypatch.undo()
    again = make_task("source", lambda _: pytest.fail("made twice"), is_resumable=True)
    assert run_tasks(schedule(again), quiet) == ["source"]
    assert is_finished(task.job.folder, task.job.fingerprint)


def test_after_each_step(make_task):
    told = []
    run_tasks(schedule(make_task("a"), make_task("b"), serial=True, after=lambda task: told.append(task.id)), quiet)
    assert told == ["a", "b"]
