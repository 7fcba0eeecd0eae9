from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from trt_spec.util import files
from trt_spec.util.files import (
    atomic_directory,
    digest_sha256,
    exclusive,
    remove_partial_files,
    write_text_atomic,
)

WRITER = """
import sys, time
from pathlib import Path
from trt_spec.util.files import atomic_directory
with atomic_directory(Path(sys.argv[1])) as folder:
    (folder / "half").write_text("half")
    print(folder, flush=True)
    time.sleep(600)
"""


@pytest.fixture
def writer(tmp_path: Path):
    """A process in the middle of writing tmp_path/[out]; yields (process, its hidden folder)."""
    process = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(tmp_path / "[out]")], stdout=subprocess.PIPE, text=True, cwd=Path.cwd()
    )
    assert process.stdout is not None
    yield process, Path(process.stdout.readline().strip())
    process.kill()
    process.wait()
    process.stdout.close()


def publish(path: Path, text: str) -> None:
    with atomic_directory(path) as folder:
        (folder / "sub").mkdir()
        (folder / "sub" / "file").write_text(text)
        (folder / "link").symlink_to("nowhere")
        assert folder.parent == path.parent


def test_a_folder_appears_whole_and_replaces_the_previous(tmp_path: Path) -> None:
    path = tmp_path / "parent" / "out"
    publish(path, "one")
    publish(path, "two")
    assert (path / "sub" / "file").read_text() == "two"
    assert list(path.parent.iterdir()) == [path]


def test_nothing_is_visible_before_the_end(tmp_path: Path) -> None:
    with atomic_directory(tmp_path / "out") as folder:
        (folder / "file").write_text("x")
        assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit])
def test_an_exception_keeps_the_previous_and_removes_the_new(tmp_path: Path, error: type[BaseException]) -> None:
    path = tmp_path / "out"
    publish(path, "one")
    with pytest.raises(error), atomic_directory(path) as folder:
        (folder / "file").write_text("x")
        raise error
    assert (path / "sub" / "file").read_text() == "one"
    assert list(tmp_path.iterdir()) == [path]


def test_a_failing_rename_brings_the_previous_back(tmp_path: Path, monkeypatch) -> None:
    path = tmp_path / "out"
    publish(path, "one")
    rename = Path.rename

    def refuse(self: Path, target: Path) -> Path:
        if self.name.endswith(files.PARTIAL_SUFFIX):
            raise OSError("no")
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", refuse)
    with pytest.raises(OSError, match="no"):
        publish(path, "two")
    assert (path / "sub" / "file").read_text() == "one"
    assert list(tmp_path.iterdir()) == [path]


def test_leftovers_of_a_killed_run_go_and_those_of_a_live_one_stay(tmp_path: Path, writer) -> None:
    process, partial = writer
    publish(tmp_path / "[out]", "mine")
    assert (partial / "half").exists()
    process.send_signal(signal.SIGKILL)
    process.wait()
    publish(tmp_path / "another", "other")
    assert (partial / "half").exists()
    publish(tmp_path / "[out]", "again")
    assert not partial.exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["[out]", "another"]


def test_a_run_killed_between_two_renames_loses_nothing(tmp_path: Path) -> None:
    path = tmp_path / "out"
    publish(path, "one")
    path.rename(tmp_path / f".out.0123abcd{files.RETIRED_SUFFIX}")
    files.remove_leftovers(path)
    assert (path / "sub" / "file").read_text() == "one"
    assert list(tmp_path.iterdir()) == [path]


def test_folders_get_the_mode_of_the_umask(tmp_path: Path) -> None:
    """Triton may run as another user than the one who built."""
    previous = os.umask(0o022)
    try:
        publish(tmp_path / "out", "one")
        write_text_atomic(tmp_path / "text", "x")
    finally:
        os.umask(previous)
    assert (tmp_path / "out").stat().st_mode & 0o777 == 0o755
    assert (tmp_path / "text").stat().st_mode & 0o777 == 0o644


def test_a_file_in_the_way_is_kept(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("mine")
    with pytest.raises(NotADirectoryError):
        publish(tmp_path / "out", "one")
    assert (tmp_path / "out").read_text() == "mine"
    assert len(list(tmp_path.iterdir())) == 1


def test_a_file_system_without_locks_is_used_without(tmp_path: Path, monkeypatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError("no locks available")

    monkeypatch.setattr(fcntl, "flock", refuse)
    publish(tmp_path / "out", "one")
    publish(tmp_path / "out", "two")
    with exclusive(tmp_path):
        assert (tmp_path / "out" / "sub" / "file").read_text() == "two"


def test_text_is_replaced_whole(tmp_path: Path, monkeypatch) -> None:
    path = tmp_path / "text"
    write_text_atomic(path, "안녕\r\n")
    assert path.read_bytes() == "안녕\r\n".encode()
    monkeypatch.setattr(os, "fsync", lambda _: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        write_text_atomic(path, "new")
    assert path.read_bytes() == "안녕\r\n".encode()
    assert list(tmp_path.iterdir()) == [path]


def test_partial_files_of_a_killed_run_go_and_nothing_else(tmp_path: Path) -> None:
    kept = [tmp_path / "a.json", tmp_path / ".b.json.0a1b2c3d.partial", tmp_path / ".a.json.0a1b2c3d.retired"]
    for path in kept:
        path.touch()
    (tmp_path / ".a.json.0a1b2c3d.partial").touch()
    (tmp_path / ".a.json.4e5f6a7b.partial").mkdir()
    remove_partial_files(tmp_path / "a.json")
    assert sorted(tmp_path.iterdir()) == sorted([*kept, tmp_path / ".a.json.4e5f6a7b.partial"])


def test_exclusive_makes_the_second_wait(tmp_path: Path) -> None:
    order: list[str] = []
    waiting = threading.Event()

    def second() -> None:
        waiting.set()
        with exclusive(tmp_path, lambda: order.append("told")):
            order.append("second")

    thread = threading.Thread(target=second)
    with exclusive(tmp_path):
        thread.start()
        waiting.wait()
        thread.join(0.2)
        order.append("first")
    thread.join()
    assert order == ["told", "first", "second"]


def test_digest_of_a_file_longer_than_a_chunk(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(files, "_READ_CHUNK_BYTES", 2)
    (tmp_path / "abc").write_bytes(b"abc")
    assert digest_sha256(tmp_path / "abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
