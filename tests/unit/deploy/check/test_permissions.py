"""Folders that the one who checks may not look into: one finding each, and the check goes on."""

import ctypes
import os
import struct

import pytest

_HEADER = struct.pack("Ii", 0x20080522, 0)  # version 3 of the capability calls, this thread
_OVERRIDE = (1 << 1) | (1 << 2)  # CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH


@pytest.fixture
def unprivileged():
    """Takes from root what lets it read everything, for the length of a test."""
    if os.geteuid() != 0:
        yield
        return
    libc = ctypes.CDLL(None, use_errno=True)
    before = ctypes.create_string_buffer(24)
    assert libc.capget(_HEADER, before) == 0
    words = list(struct.unpack("6I", before.raw[:24]))
    words[0] &= ~_OVERRIDE  # effective ones of the lower half
    assert libc.capset(_HEADER, struct.pack("6I", *words)) == 0
    yield
    assert libc.capset(_HEADER, before) == 0


@pytest.fixture
def refuse(unprivileged):
    """refuse(path, mode): the folder has that mode until the test ends."""
    changed = []

    def change(path, mode):
        path.chmod(mode)
        changed.append(path)
        if mode == 0:
            with pytest.raises(PermissionError):
                list(path.iterdir())

    yield change
    for path in changed:
        path.chmod(0o755)


@pytest.mark.parametrize("mode", [0o000, 0o644, 0o444])
@pytest.mark.parametrize("kind", ["ours", "theirs"])
@pytest.mark.parametrize("model", ["ensemble", "tensorrt_llm_bls", "tensorrt_llm"])
def test_one_version_folder_is_one_finding(request, refuse, kind, model, mode):
    repository = request.getfixturevalue(kind)()
    before = repository.findings()
    folder = repository.root / model / "1"
    refuse(folder, mode)
    new = [finding for finding in repository.findings() if finding not in before]
    assert [(finding.code, finding.file) for finding in new][:1] == [("file-unreadable", f"{model}/1")] or mode != 0
    assert {finding.code for finding in new} == {"file-unreadable"}
    assert len(new) == 1


@pytest.mark.parametrize("mode", [0o000, 0o644])
def test_one_model_folder_is_one_finding(ours, refuse, mode):
    repository = ours()
    refuse(repository.root / "ensemble", mode)
    found = repository.findings()
    assert [(finding.code, finding.file) for finding in found] == [("config-unreadable", "ensemble/config.pbtxt")]


def test_folders_around_and_beside(theirs, refuse):
    repository = theirs()
    (repository.root / "trtspec.json").symlink_to(repository.engines / "trtspec.json")
    refuse(repository.engines, 0o000)
    found = repository.findings("engine-missing", "engine-config", "engine-unreadable")
    assert [finding.code for finding in found] == ["engine-unreadable"] * 2
    assert "cannot be read (Permission denied)" in found[0].what
    assert repository.find("marker").what == "trtspec.json cannot be read (Permission denied)"


def test_a_tokenizer_folder_that_may_not_be_read_does_exist(theirs, refuse):
    repository = theirs()
    refuse(repository.root.parent / "tokenizer", 0o000)
    found = repository.findings("tokenizer-unreadable", "tokenizer-missing")
    assert [finding.code for finding in found] == ["tokenizer-unreadable"] * 2
    assert "cannot be read (Permission denied)" in found[0].what
