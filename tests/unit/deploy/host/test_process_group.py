"""Processes of a server that left its session, on plain ones."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from trt_spec.deploy.host.process_group import MARK_VARIABLE, kill_processes, list_marked, list_processes

MARK = "trtspec_5e55105e_"
SLEEP = "import time; time.sleep(600)"


@pytest.fixture
def start() -> Iterator[object]:
    started = []

    def run(*words: str, marked: bool = False) -> subprocess.Popen[bytes]:
        environment = {**os.environ, **({MARK_VARIABLE: MARK} if marked else {})}
        started.append(subprocess.Popen([sys.executable, "-c", SLEEP, *words], env=environment, start_new_session=True))
        return started[-1]

    yield run
    for process in started:
        process.kill()
        process.wait()


def test_the_inherited_mark_is_found_in_any_session(start) -> None:
    leader, away = start(marked=True), start(marked=True)
    assert set(list_marked(leader.pid, MARK)) == {leader.pid, away.pid}
    assert {process.pid for process in list_processes(leader.pid, MARK)} == {leader.pid, away.pid}
    assert [process.pid for process in list_processes(leader.pid, "another mark")] == [leader.pid]
    kill_processes(leader.pid, MARK, whole_session=False)
    assert list_marked(leader.pid, MARK) == []


def test_who_only_names_the_mark_is_left_alone(start) -> None:
    """Somebody who looks for a server's files: `ls /dev/shm/trtspec_...`."""
    leader, onlooker = start(), start(MARK)
    assert list_marked(leader.pid, MARK) == []
    assert list_marked(onlooker.pid, MARK) == [onlooker.pid]  # in its own session it is a part
    kill_processes(leader.pid, MARK, whole_session=False)
    assert onlooker.poll() is None


def test_a_longer_mark_is_another_one(start) -> None:
    leader = start(marked=True)
    assert list_marked(1, MARK[:-1]) == []
    kill_processes(1, MARK[:-1], whole_session=False)
    assert leader.poll() is None


def test_programs_of_a_script(start) -> None:
    leader = start(marked=True)
    (process,) = list_processes(leader.pid, MARK)
    assert process.programs[0].startswith("python")
    assert process.command[1:] == ("-c", SLEEP)
