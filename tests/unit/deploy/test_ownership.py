"""Folders that trtspec wrote, after something else happened to them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from trt_spec.deploy.ownership import (
    MARKER_FILE,
    check_replaceable,
    digest_owned,
    read_marker,
    remove_owned_folder,
    write_owned_folder,
)
from trt_spec.errors import SpecError

KIND = "launch files"


@pytest.fixture
def owned(tmp_path: Path) -> Path:
    return write_owned_folder(tmp_path / "owned", KIND, {"a.sh": "#!/bin/sh\n", "b/c": "c"}, {"deployment": "pair"})


@pytest.mark.timeout(20)
def test_a_marker_that_is_a_pipe_is_none(owned: Path) -> None:
    (owned / MARKER_FILE).unlink()
    os.mkfifo(owned / MARKER_FILE)
    assert read_marker(owned) is None
    with pytest.raises(SpecError, match=r"was not written by trtspec \(launch files\)"):
        check_replaceable(owned, KIND)


@pytest.mark.parametrize("text", ["[" * 100_000, '{"files":' * 100_000, "{", "[]", '{"files": []}', "\0"])
def test_a_marker_of_somebody_else_is_none(owned: Path, text: str) -> None:
    (owned / MARKER_FILE).write_text(text, encoding="utf-8")
    assert read_marker(owned) is None


@pytest.mark.timeout(20)
def test_a_file_that_is_none_any_more_is_a_change(owned: Path) -> None:
    for replace in (os.mkfifo, lambda path: path.symlink_to("nowhere")):
        (owned / "a.sh").unlink()
        replace(owned / "a.sh")
        with pytest.raises(SpecError, match=r"was changed since trtspec wrote it: a\.sh"):
            check_replaceable(owned, KIND)


def test_a_link_that_leads_nowhere_is_not_written_through(tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to("nowhere")
    with pytest.raises(SpecError, match="is a link that leads nowhere"):
        write_owned_folder(link, KIND, {"a": "a"}, {})
    assert link.is_symlink() and list(tmp_path.iterdir()) == [link]


def test_the_digest_is_of_the_contents_alone(tmp_path: Path, owned: Path) -> None:
    same = write_owned_folder(tmp_path / "same", KIND, {"b/c": "c", "a.sh": "#!/bin/sh\n"}, {"deployment": "other"})
    other = write_owned_folder(tmp_path / "other", KIND, {"a.sh": "#!/bin/sh\n", "b/d": "c"}, {})
    assert digest_owned(owned) == digest_owned(same) != digest_owned(other)
    assert digest_owned(tmp_path) == ""


def test_only_what_trtspec_wrote_is_removed(tmp_path: Path, owned: Path) -> None:
    (owned / "mine").touch()
    with pytest.raises(SpecError, match="mine"):
        remove_owned_folder(owned, KIND)
    (owned / "mine").unlink()
    with pytest.raises(SpecError, match="not written by trtspec"):
        remove_owned_folder(owned, "model repository")
    remove_owned_folder(owned, KIND)
    remove_owned_folder(owned, KIND)
    assert list(tmp_path.iterdir()) == []
