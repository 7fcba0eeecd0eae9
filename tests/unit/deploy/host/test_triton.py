from __future__ import annotations

import importlib.util
import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

from trt_spec.deploy.host import triton
from trt_spec.deploy.host.triton import find_triton, write_backends
from trt_spec.errors import EnvironmentMissing, SpecError


def test_finds_the_server_without_importing_pytriton() -> None:
    found = "from trt_spec.deploy.host.triton import find_triton; find_triton()"
    code = f"import sys; {found}; print('pytriton' in sys.modules)"
    root = Path(triton.__file__).parents[3]
    done = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_environment_starts_with_this_python_and_the_wheels_libraries() -> None:
    install = find_triton()
    environment = install.resolve_environment({"PATH": "/bin", "LD_LIBRARY_PATH": "/lib", "X": "1"})
    assert environment["PATH"] == f"{Path(sys.executable).parent}:/bin"
    assert environment["LD_LIBRARY_PATH"] == f"{install.libraries}:/lib"
    assert environment["X"] == "1"
    assert install.resolve_environment({})["LD_LIBRARY_PATH"] == str(install.libraries)


def test_backends_hold_real_files(tmp_path: Path) -> None:
    backends = write_backends(find_triton(), tmp_path / "backends")
    library = backends / "python" / "libtriton_python.so"
    assert library.is_file() and not library.is_symlink()
    assert os.access(backends / "python" / "triton_python_backend_stub", os.X_OK)
    assert (backends / "tensorrtllm" / "trtspec_serve" / "local_backend" / "backend_model.py").is_file()
    assert write_backends(find_triton(), backends) == backends
    (backends / "mine").touch()
    with pytest.raises(SpecError, match="mine"):
        write_backends(find_triton(), backends)


def test_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(EnvironmentMissing, match=r"pip install 'trtspec\[local\]'"):
        find_triton()


@pytest.mark.parametrize(("system", "machine"), [("darwin", "arm64"), ("win32", "AMD64"), ("linux", "riscv64")])
def test_unsupported_platform(monkeypatch: pytest.MonkeyPatch, system: str, machine: str) -> None:
    monkeypatch.setattr(sys, "platform", system)
    monkeypatch.setattr(platform, "machine", lambda: machine)
    with pytest.raises(EnvironmentMissing, match=f"{system} {machine}"):
        find_triton()


@pytest.mark.parametrize(
    ("libc", "shown"),
    [("glibc 2.31", "has glibc 2.31"), ("musl 1.2", "another C library"), (None, "another C library")],
)
def test_unsupported_c_library(monkeypatch: pytest.MonkeyPatch, libc: str | None, shown: str) -> None:
    monkeypatch.setattr(os, "confstr", lambda name: libc)
    with pytest.raises(EnvironmentMissing, match=f"glibc 2.35.*{shown}"):
        find_triton()


def test_a_python_that_keeps_its_libpython_to_itself(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """pyenv, conda, uv: the loader does not find it, so the server is told where it is."""
    name = f"libpython{sys.version_info.major}.{sys.version_info.minor}.so.1.0"
    monkeypatch.setattr("ctypes.util.find_library", lambda _name: None)
    monkeypatch.setattr("sysconfig.get_config_var", lambda _name: str(tmp_path))
    monkeypatch.setattr(sys, "base_prefix", str(tmp_path / "none"))
    with pytest.raises(EnvironmentMissing, match=name):
        find_triton()
    (tmp_path / name).touch()
    environment = find_triton().resolve_environment({"LD_LIBRARY_PATH": "/mine"})
    libraries = environment["LD_LIBRARY_PATH"].split(":")
    assert libraries[1:] == [str(tmp_path), "/mine"]


def test_python_without_a_stub(monkeypatch: pytest.MonkeyPatch) -> None:
    class Version(tuple[int, ...]):
        major, minor = 3, 99

    monkeypatch.setattr(sys, "version_info", Version((3, 99)))
    with pytest.raises(EnvironmentMissing, match=r"no stub for Python 3\.99, only for 3\.10, 3\.11"):
        find_triton()


def test_interpreter_that_the_stub_would_not_find(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "python3").touch()
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python3.11"))
    (tmp_path / "python3.11").touch()
    with pytest.raises(EnvironmentMissing, match="virtual environment"):
        find_triton()
