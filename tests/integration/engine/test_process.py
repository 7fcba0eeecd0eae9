"""Commands under their guard: log, exit code, memory, and an end for all that was started."""

from __future__ import annotations

import os
import sys
import threading
import time
from pathlib import Path

import pytest

from trt_spec.build.engine.process import Command, read_last_line, run_command
from trt_spec.errors import StepFailed


def run(tmp_path: Path, code: str, stop: threading.Event | None = None, **settings):
    lines: list[str] = []
    command = Command((sys.executable, "-c", code), {**os.environ, **settings.pop("variables", {})}, **settings)
    outcome = run_command(
        command, tmp_path / "log", status=lines.append, stop=stop or threading.Event(), hold=settings.get("hold")
    )
    return outcome, lines


def test_both_outputs_go_to_the_log_and_the_code_comes_back(tmp_path: Path):
    code = "import sys; print('out'); print('err', file=sys.stderr); sys.exit(7)"
    outcome, _ = run(tmp_path, code)
    assert outcome.code == 7
    assert set((tmp_path / "log").read_text().split()) == {"out", "err"}


def test_a_signal_is_a_negative_code(tmp_path: Path):
    outcome, _ = run(tmp_path, "import os; os.kill(os.getpid(), 11)")
    assert outcome.code == -11


def test_the_largest_memory_is_measured(tmp_path: Path):
    outcome, _ = run(tmp_path, "x = bytearray(200 << 20)")
    assert 200 << 20 < outcome.peak_memory_bytes < 400 << 20


def test_a_long_output_is_complete(tmp_path: Path):
    outcome, _ = run(tmp_path, "for i in range(200000): print(i)")
    assert outcome.code == 0
    assert (tmp_path / "log").read_text() == "".join(f"{i}\n" for i in range(200000))


def test_the_last_line_is_told_while_it_runs(tmp_path: Path):
    _, lines = run(
        tmp_path, "import time; print('first', flush=True); print('half\\rmore', end='', flush=True); time.sleep(1.2)"
    )
    assert "more" in lines


@pytest.mark.parametrize("pause_s", [0, 0.001])
def test_a_secret_is_kept_out_even_in_pieces(tmp_path: Path, pause_s):
    code = (
        "import os, sys, time\n"
        "secret = os.environ['PLANTED']\n"
        "for character in f'before {secret} {secret[:5]} after':\n"
        "    sys.stdout.write(character); sys.stdout.flush(); time.sleep(" + str(pause_s) + ")\n"
    )
    run(tmp_path, code, variables={"PLANTED": "s3cr3t-token"}, secrets=("PLANTED",))
    assert (tmp_path / "log").read_text() == "before [secret] s3cr3 after"


def test_workers_left_behind_are_ended(tmp_path: Path):
    """Also one that left the group and whose parent is gone."""
    code = (
        "import os, subprocess, sys\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'], start_new_session=True)\n"
        "print(child.pid)\n"
    )
    outcome, _ = run(tmp_path, code)
    assert outcome.code == 0
    pid = int((tmp_path / "log").read_text())
    assert not Path(f"/proc/{pid}").exists()


def test_stopping_runs_the_cleanup_and_raises(tmp_path: Path):
    stop = threading.Event()
    threading.Timer(0.5, stop.set).start()
    cleanup = (sys.executable, "-c", f"open({str(tmp_path / 'cleaned')!r}, 'w')")
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, "import time; time.sleep(600)", stop, cleanup=cleanup)
    assert (tmp_path / "cleaned").exists()


def test_a_command_that_ends_well_needs_no_cleanup(tmp_path: Path):
    cleanup = (sys.executable, "-c", f"open({str(tmp_path / 'cleaned')!r}, 'w')")
    run(tmp_path, "pass", cleanup=cleanup)
    assert not (tmp_path / "cleaned").exists()


def count_descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_no_descriptor_is_left_open(tmp_path: Path):
    before = count_descriptors()
    for _ in range(3):
        run(tmp_path, "pass")
    deadline = time.monotonic() + 5
    while count_descriptors() > before and time.monotonic() < deadline:
        time.sleep(0.05)
    assert count_descriptors() == before


def test_the_last_line_of_a_log_that_is_not_there_is_empty(tmp_path: Path):
    assert read_last_line(tmp_path / "none") == ""


def test_a_guard_that_is_killed_is_a_failed_step(tmp_path: Path):
    """The command then goes on alone, as nobody is left to end it; its own parent is what it kills here."""
    with pytest.raises(StepFailed, match="watches over the command was ended"):
        run(tmp_path, "import os, signal; os.kill(os.getppid(), signal.SIGKILL)")
