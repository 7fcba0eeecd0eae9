"""Generated files: what is stale is named, and writing leaves alone what is written by hand."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from trt_spec.util.generated import GeneratedFolder, run_generator

RENDERED = {"a.txt": b"a", "sub/b.txt": b"b"}


@pytest.fixture
def stale(tmp_path: Path) -> Path:
    """A folder with a file by hand, one that differs, one that is too much, and compiled code."""
    for name, text in {"README.md": "mine", "a.txt": "old", "gone/c.txt": "c", "sub/__pycache__/x.pyc": ""}.items():
        (tmp_path / name).parent.mkdir(exist_ok=True, parents=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def test_a_folder_of_its_own(stale: Path) -> None:
    folder = GeneratedFolder(stale, by_hand=("README.md",))
    assert folder.list_stale(RENDERED) == ["a.txt", "gone/c.txt", "sub/b.txt"]
    folder.write(RENDERED)
    assert folder.load() == RENDERED
    assert folder.list_stale(RENDERED) == []
    assert (stale / "README.md").read_text() == "mine"
    assert not (stale / "gone").exists()


def test_files_among_others(stale: Path) -> None:
    folder = GeneratedFolder(stale)
    assert folder.list_stale(RENDERED) == ["a.txt", "sub/b.txt"]
    folder.write(RENDERED)
    assert folder.list_stale(RENDERED) == []
    assert (stale / "gone" / "c.txt").read_text() == "c"


def test_the_command(stale: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = GeneratedFolder(stale / "new")
    monkeypatch.setattr(sys, "argv", ["it"])
    with pytest.raises(SystemExit, match=r"^new/ differs, renew it with --write: a\.txt, sub/b\.txt$"):
        run_generator("it", folder, RENDERED)
    monkeypatch.setattr(sys, "argv", ["it", "--write"])
    run_generator("it", folder, RENDERED)
    monkeypatch.setattr(sys, "argv", ["it"])
    run_generator("it", folder, RENDERED)
