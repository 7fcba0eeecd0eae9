"""Listing and pruning a workspace: what the spec needs stays, what trtspec did not write stays too."""

import fcntl
import json
import os
import shutil
import time
from dataclasses import replace

import pytest

from trt_spec.build.inventory import DAY_S, list_outputs, prune_outputs
from trt_spec.build.store import Job, run_step
from trt_spec.errors import EnvironmentMissing, SpecError
from trt_spec.plan.steps import Step
from trt_spec.plan.workspace import Workspace


def yes(_doomed):
    return True


@pytest.fixture
def place(tmp_path):
    return Workspace(tmp_path / "work")


@pytest.fixture
def steps(place):
    """Fetch, convert and build for the target; the same without fetching for the draft."""
    made = []
    for role in ("draft", "target"):
        source, checkpoint, engine = place.source(role), place.checkpoint(role), place.engine(role)
        made += [
            Step(f"fetch-{role}", "fetch", role, f"org/{role}", {"revision": None}, (), (), (source,)),
            Step(f"convert-{role}", "convert", role, f"org/{role}", {"tp": 1}, (), (source,), (checkpoint,)),
            Step(
                f"engine-{role}", "trtllm_build", role, f"org/{role}", {"flags": ("a", 1)}, (), (checkpoint,), (engine,)
            ),
        ]
    return tuple(made)


def make(step, size=10):
    def write(folder):
        folder.mkdir(exist_ok=True)
        (folder / "rank0.engine").write_bytes(b"x" * size)
        return {}

    run_step(Job(step, step.outputs[0], {}, {}, "f" * 40 + step.id), write)


def states(place, steps):
    return {str(output.path.relative_to(place.root)): output.state for output in list_outputs(place, steps)}


def test_finished_outputs_are_listed_with_what_they_are(place, steps):
    for step in steps:
        make(step)
    listed = list_outputs(place, steps)
    assert {(output.kind, output.role) for output in listed} == {
        (kind, role) for kind in ("source", "checkpoint", "engine") for role in ("target", "draft")
    }
    for output in listed:
        files = list(output.path.iterdir())
        assert output.size_bytes == sum(file.stat().st_size for file in files) > 10
        assert output.fingerprint == json.loads((output.path / "manifest.json").read_text())["fingerprint"]
        assert output.state == "current" and not output.is_removable
        assert 0 <= output.age_s < DAY_S
    assert prune_outputs(place, steps, confirm=yes) == ()


def test_an_engine_of_other_parameters_goes_and_its_neighbours_stay(place, steps):
    for step in steps:
        make(step)
    changed = tuple(replace(step, params={"tp": ("a", 2)}) if step.id == "engine-target" else step for step in steps)
    removed = prune_outputs(place, changed, confirm=yes)
    assert [(output.path, output.state) for output in removed] == [(place.engine("target"), "outdated")]
    assert not place.engine("target").exists()
    assert set(states(place, changed).values()) == {"current"}
    assert len(states(place, changed)) == 5


def test_outputs_of_a_role_that_is_gone_are_removed(place, steps):
    for step in steps:
        make(step)
    alone = tuple(step for step in steps if step.role == "target")
    removed = prune_outputs(place, alone, confirm=yes)
    assert {output.path for output in removed} == {
        place.engine("draft"),
        place.checkpoint("draft"),
        place.source("draft"),
    }
    assert {output.role for output in list_outputs(place, alone)} == {"target"}


def test_a_folder_that_a_step_reads_stays(place, steps):
    for step in steps:
        make(step)
    source = str(place.source("draft"))
    reads = tuple(replace(step, source=source) for step in steps if step.id in ("convert-target", "engine-target"))
    assert states(place, reads)["sources/draft"] == "kept"
    prune_outputs(place, reads, confirm=yes)
    assert place.source("draft").is_dir()


def test_a_folder_without_our_manifest_is_not_ours(place, steps):
    mine = place.engine("draft")
    mine.mkdir(parents=True)
    (mine / "notes.txt").write_text("keep me")
    (place.root / "engines" / "other").mkdir()
    alone = tuple(step for step in steps if step.role == "target")
    assert states(place, alone) == {"engines/draft": "foreign"}
    assert prune_outputs(place, alone, confirm=yes) == ()
    (mine / "manifest.json").write_text("[1]")
    assert states(place, alone) == {"engines/draft": "foreign"}


def test_nothing_is_removed_without_a_yes(place, steps):
    make(steps[0])
    seen = []
    assert prune_outputs(place, steps[2:], confirm=lambda doomed: bool(seen.extend(doomed))) == ()
    assert [output.path for output in seen] == [place.source("draft")]
    assert place.source("draft").is_dir()


def test_a_plan_without_steps_removes_nothing(place, steps):
    make(steps[0])
    with pytest.raises(SpecError, match="no steps"):
        prune_outputs(place, (), confirm=yes)
    assert place.source("draft").is_dir()


def test_leftovers_of_killed_runs_go_and_those_in_use_stay(place, steps):
    engines = place.engine("target").parent
    dead, alive = engines / ".target.0a1b2c3d.partial", engines / ".target.11111111.partial"
    for folder in (dead, alive):
        folder.mkdir(parents=True)
        (folder / "half").write_bytes(b"12345")
    descriptor = os.open(alive, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    try:
        listed = {output.path: output for output in list_outputs(place, steps)}
        assert (listed[dead].state, listed[dead].size_bytes, listed[dead].role) == ("left", 5, "target")
        assert listed[alive].state == "in use"
        assert [output.path for output in prune_outputs(place, steps, confirm=yes)] == [dead]
    finally:
        os.close(descriptor)
    assert alive.is_dir() and not dead.exists()


def test_what_the_next_build_goes_on_with_stays(place, steps):
    sources, engines = place.source("target").parent, place.engine("target").parent
    resume, retired = sources / ".target.0123456789ab.resume", engines / ".target.22222222.retired"
    for folder in (resume, retired):
        folder.mkdir(parents=True)
    assert set(states(place, steps).values()) == {"unfinished"}
    assert prune_outputs(place, steps, confirm=yes) == ()
    onnx = (Step("engine-target", "onnx_engine", "target", "org/target", {}),)
    assert [output.path for output in prune_outputs(place, onnx, confirm=yes)] == [resume]
    make(steps[-1])
    retired.mkdir()  # replaced after all: the previous version is of no use
    assert states(place, steps)["engines/.target.22222222.retired"] == "left"


def test_links_are_shown_and_never_followed(place, steps, tmp_path):
    make(steps[0])
    outside = tmp_path / "elsewhere"
    shutil.move(place.root / "sources", outside)
    (place.root / "sources").symlink_to(outside)
    (place.root / "engines").mkdir()
    (place.root / "engines" / "draft").symlink_to(outside / "draft")
    (place.root / "engines" / ".target.0a1b2c3d.partial").symlink_to(outside / "draft")
    other = (replace(steps[-1], params={}),)
    listed = list_outputs(place, other)
    assert {(output.kind, output.state, output.size_bytes) for output in listed} == {
        ("source", "link", 0),
        ("engine", "link", 0),
    }
    assert prune_outputs(place, other, confirm=yes) == ()
    assert (outside / "draft" / "rank0.engine").is_file()


def test_a_link_inside_a_removed_folder_keeps_its_target(place, steps, tmp_path):
    make(steps[0])
    (tmp_path / "precious").write_text("mine")
    (place.source("draft") / "link").symlink_to(tmp_path / "precious")
    (place.source("draft") / "folder").symlink_to(tmp_path)
    assert len(prune_outputs(place, steps[2:], confirm=yes)) == 1
    assert (tmp_path / "precious").read_text() == "mine"


def test_old_logs_go_and_young_ones_and_other_files_stay(place, steps):
    logs = place.logs
    logs.mkdir(parents=True)
    for name, age_days in (("engine-target.1.log", 31), ("engine-draft.2.config.json", 29), ("notes.txt", 400)):
        (logs / name).write_text("text")
        os.utime(logs / name, (time.time() - age_days * DAY_S,) * 2)
    assert states(place, steps) == {"logs/engine-target.1.log": "left", "logs/engine-draft.2.config.json": "kept"}
    assert [output.role for output in prune_outputs(place, steps, confirm=yes)] == ["target"]
    assert sorted(path.name for path in logs.iterdir()) == ["engine-draft.2.config.json", "notes.txt"]
    assert len(prune_outputs(place, steps, confirm=yes, log_age_days=28)) == 1


def test_no_prune_during_a_build(place, steps):
    make(steps[0])
    descriptor = os.open(place.root, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    try:
        with pytest.raises(EnvironmentMissing, match="A build is running"):
            prune_outputs(place, steps[2:], confirm=yes)
    finally:
        os.close(descriptor)
    assert place.source("draft").is_dir()


def test_no_workspace(place, steps):
    for act in (lambda: list_outputs(place, steps), lambda: prune_outputs(place, steps, confirm=yes)):
        with pytest.raises(SpecError, match="does not exist"):
            act()
