"""Killed, interrupted, out of space: the next run ends with the same bytes and leaves nothing else behind."""

import errno
import os
import random
import signal
from pathlib import Path

import pytest

from trt_spec.build.checkpoint import convert as convert_module
from trt_spec.build.checkpoint import write as write_module
from trt_spec.build.checkpoint.workplace import open_workplace
from trt_spec.errors import EnvironmentMissing, SpecError, StepFailed

KILLS = 30
CALLS = ("pwrite", "fsync", "rename", "replace", "unlink", "open", "mkdir", "rmdir")


def contents(folder):
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != "manifest.json"
    }


@pytest.fixture
def expected(make_source, convert, tmp_path):
    """The source, and the bytes of an undisturbed conversion of it."""
    model, _ = make_source()
    convert(model, output=tmp_path / "undisturbed", tp=2, pp=3)
    return model, contents(tmp_path / "undisturbed")


def run_in_child(prepare, run):
    """Run ``run`` in a forked child after ``prepare``; the signal that ended it, 0 if it finished."""
    pid = os.fork()
    if pid == 0:
        try:
            prepare()
            run()
        finally:
            os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


class Countdown:
    """Counts calls of the system, and kills this very process at one of them."""

    def __init__(self, calls):
        self.left = calls
        self.originals = {name: getattr(os, name) for name in CALLS}

    def install(self):
        for name, original in self.originals.items():
            setattr(os, name, self.wrap(original))

    def remove(self):
        for name, original in self.originals.items():
            setattr(os, name, original)

    def wrap(self, original):
        def call(*arguments, **options):
            self.left -= 1
            if self.left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return original(*arguments, **options)

        return call


def test_killed_at_random_moments_then_run_again(expected, convert, tmp_path):
    model, undisturbed = expected
    counting = Countdown(0)
    counting.install()
    convert(model, output=tmp_path / "counted", tp=2, pp=3, workers=2)
    counting.remove()
    moments = -counting.left
    assert moments > 150
    kept, killed = 0, 0
    for number in range(KILLS):
        output = tmp_path / f"killed-{number}"
        # The first kills are the latest ones: around the end, where the folder gets its name.
        moment = moments - number if number < KILLS // 3 else random.Random(number).randint(1, moments)
        status = run_in_child(
            Countdown(moment).install, lambda output=output: convert(model, output=output, tp=2, pp=3, workers=2)
        )
        killed += status == -signal.SIGKILL
        assert not output.exists() or contents(output) == undisturbed
        kept += bool(convert(model, output=output, tp=2, pp=3).reused)
        assert contents(output) == undisturbed
        assert not [path.name for path in tmp_path.iterdir() if path.name.startswith(".")]
    assert killed > KILLS // 2
    assert kept > KILLS // 4  # finished ranks were not written again


def test_a_killed_run_of_other_options_leaves_nothing(expected, convert, tmp_path):
    model, undisturbed = expected
    output = tmp_path / "out"
    assert run_in_child(Countdown(60).install, lambda: convert(model, output=output, tp=4)) == -signal.SIGKILL
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == [".out.convert"]
    assert convert(model, output=output, tp=2, pp=3).reused == ()
    assert contents(output) == undisturbed
    assert not [path.name for path in tmp_path.iterdir() if path.name.startswith(".")]


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
def test_a_full_disk_is_an_error_and_nothing_that_looks_finished(expected, convert, tmp_path, monkeypatch, code):
    model, undisturbed = expected
    output, written = tmp_path / "out", 0

    def pwrite(descriptor, data, offset):
        nonlocal written
        written += len(data)
        if written > 50_000:
            raise OSError(code, os.strerror(code))
        return os_pwrite(descriptor, data, offset)

    os_pwrite = os.pwrite
    monkeypatch.setattr(write_module.os, "pwrite", pwrite)
    with pytest.raises(StepFailed, match="disk is full" if code == errno.ENOSPC else "Input/output error") as caught:
        convert(model, output=output, tp=2, pp=3, workers=1)
    assert "run the same command again" in caught.value.remedy
    assert not output.exists()
    monkeypatch.setattr(write_module.os, "pwrite", os_pwrite)
    with monkeypatch.context() as scarce:
        usage = convert_module.shutil.disk_usage("/")._replace(free=1000)
        scarce.setattr(convert_module.shutil, "disk_usage", lambda _: usage)
        with pytest.raises(EnvironmentMissing):
            convert(model, output=output, tp=2, pp=3)
    done = convert(model, output=output, tp=2, pp=3)
    assert done.reused
    assert contents(output) == undisturbed


def test_short_writes_are_continued(expected, convert, tmp_path, monkeypatch):
    model, undisturbed = expected
    os_pwrite = os.pwrite
    monkeypatch.setattr(
        write_module.os, "pwrite", lambda fd, data, at: os_pwrite(fd, data[: max(1, len(data) // 2)], at)
    )
    convert(model, output=tmp_path / "out", tp=2, pp=3)
    assert contents(tmp_path / "out") == undisturbed


def test_an_interrupt_keeps_finished_ranks(expected, convert, tmp_path, monkeypatch):
    model, undisturbed = expected
    marked = []

    def mark_twice(self, name, rank):
        if len(marked) == 2:
            raise KeyboardInterrupt
        marked.append(name)
        original(self, name, rank)

    original = convert_module.Workplace.mark
    monkeypatch.setattr(convert_module.Workplace, "mark", mark_twice)
    with pytest.raises(KeyboardInterrupt):
        convert(model, output=tmp_path / "out", tp=2, pp=3, workers=1)
    monkeypatch.setattr(convert_module.Workplace, "mark", original)
    assert not (tmp_path / "out").exists()
    assert sorted(convert(model, output=tmp_path / "out", tp=2, pp=3).reused) == sorted(marked)
    assert contents(tmp_path / "out") == undisturbed


def test_a_source_that_changed_is_converted_anew(expected, convert, tmp_path):
    model, _ = expected
    output = tmp_path / "out"
    assert run_in_child(Countdown(120).install, lambda: convert(model, output=output, tp=2, pp=3)) == -signal.SIGKILL
    os.utime(model / "model.safetensors")
    assert convert(model, output=output, tp=2, pp=3).reused == ()
    with pytest.raises(SpecError, match="not empty"):
        os.utime(model / "model.safetensors", (0, 0))
        convert(model, output=output, tp=2, pp=3)


def test_a_second_run_has_nothing_to_do(expected, convert, tmp_path):
    model, _ = expected
    inodes = {path.name: path.stat().st_ino for path in (tmp_path / "undisturbed").iterdir()}
    done = convert(model, output=tmp_path / "undisturbed", tp=2, pp=3)
    assert len(done.reused) == 6
    assert inodes == {path.name: path.stat().st_ino for path in (tmp_path / "undisturbed").iterdir()}


def test_two_at_once_are_refused(expected, convert, tmp_path):
    model, _ = expected
    with (
        open_workplace(tmp_path / "out", "other"),
        pytest.raises(StepFailed, match="Another trtspec convert is writing"),
    ):
        convert(model, output=tmp_path / "out")
    assert Path(tmp_path / ".out.convert").exists()
    convert(model, output=tmp_path / "out")
