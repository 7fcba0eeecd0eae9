"""The Triton server inside the nvidia-pytriton wheel: where its parts are, and the backend directory it starts with.

pytriton itself is never imported: only its files are used.
"""

from __future__ import annotations

import ctypes.util
import importlib.metadata
import importlib.util
import os
import platform
import shutil
import sys
import sysconfig
from dataclasses import dataclass, replace
from pathlib import Path

from trt_spec.deploy.ownership import owned_folder
from trt_spec.deploy.repository import BACKEND_MODULE, write_serve_package
from trt_spec.errors import EnvironmentMissing

BACKENDS_KIND = "backend directory"
LOCAL_BACKEND = "tensorrtllm"  # the name of NVIDIA's C++ backend, so that its config.pbtxt loads unchanged
STUB_NAME = "triton_python_backend_stub"
MACHINES = ("x86_64", "aarch64")
MIN_GLIBC = (2, 35)  # the wheel is manylinux_2_35
INSTALL_REMEDY = "Install it with `pip install 'trtspec[local]'`."


@dataclass(frozen=True)
class TritonInstall:
    """Paths of one Triton server; ``python_bin`` is the folder whose python3 runs the model code."""

    server: Path
    python_backend: Path
    stub: Path
    libraries: Path
    python_bin: Path
    version: str
    libpython: Path | None = None  # the folder of libpython, where the loader does not find it by itself

    def resolve_environment(self, base: dict[str, str]) -> dict[str, str]:
        """Return ``base`` with what the server and its Python processes need.

        The stub takes the first python3 on PATH, and does not start without the wheel's shared libraries.
        """
        libpython = "" if self.libpython is None else str(self.libpython)
        libraries = [str(self.libraries), libpython, base.get("LD_LIBRARY_PATH", "")]
        path = [str(self.python_bin), base.get("PATH", os.defpath)]
        return {
            **base,
            "LD_LIBRARY_PATH": os.pathsep.join(entry for entry in libraries if entry),
            "PATH": os.pathsep.join(path),
        }


def find_triton() -> TritonInstall:
    """Return the embedded Triton of this Python environment.

    Raises EnvironmentMissing on a platform the wheel does not serve, and where it is not installed or incomplete.
    """
    _check_platform()
    found = importlib.util.find_spec("pytriton")
    if found is None or not found.submodule_search_locations:
        raise EnvironmentMissing(
            "The embedded Triton server is not installed (package nvidia-pytriton).", remedy=INSTALL_REMEDY
        )
    package = Path(next(iter(found.submodule_search_locations)))
    root = package / "tritonserver"
    minor = f"{sys.version_info.major}.{sys.version_info.minor}"
    install = TritonInstall(
        server=root / "bin" / "tritonserver",
        python_backend=root / "backends" / "python",
        stub=root / "python_backend_stubs" / minor / STUB_NAME,
        libraries=package.parent / "nvidia_pytriton.libs",
        python_bin=_find_python_bin(),
        version=importlib.metadata.version("nvidia-pytriton"),
    )
    if not install.stub.is_file():
        known = sorted(path.parent.name for path in root.glob(f"python_backend_stubs/*/{STUB_NAME}"))
        raise EnvironmentMissing(
            f"The embedded Triton of nvidia-pytriton {install.version} has no stub for Python {minor}, "
            f"only for {', '.join(known) or 'none'}.",
            remedy="Use one of those Python versions for the environment of trtspec.",
        )
    for path in (install.server, install.python_backend / "libtriton_python.so", install.libraries):
        if not path.exists():
            raise EnvironmentMissing(
                f"nvidia-pytriton {install.version} is installed without {path}.",
                remedy="Install it again with `pip install --force-reinstall 'trtspec[local]'`.",
            )
    return replace(install, libpython=_find_libpython(minor))


def _find_libpython(minor: str) -> Path | None:
    """Return the folder of the shared libpython that the stub needs, None where the loader finds one by itself.

    Pythons of pyenv, conda and uv keep theirs to themselves. Raises EnvironmentMissing where there is none at all.
    """
    if ctypes.util.find_library(f"python{minor}"):
        return None
    name = f"libpython{minor}.so.1.0"
    for folder in (sysconfig.get_config_var("LIBDIR"), str(Path(sys.base_prefix, "lib"))):
        if folder and Path(folder, name).is_file():
            return Path(folder)
    raise EnvironmentMissing(
        f"The embedded Triton needs {name}, and neither the system nor this Python ({sys.base_prefix}) has it.",
        remedy=f"Install it (Debian: apt install libpython{minor}), or use a Python built with --enable-shared.",
    )


def write_backends(install: TritonInstall, destination: Path) -> Path:
    """Write the backend directory: Triton's Python backend and our local ``tensorrtllm`` one; return its absolute path.

    Files are copied: Triton refuses a libtriton_python.so that is a link out of its folder. Raises SpecError where
    ``destination`` holds anything that trtspec did not write.
    """
    with owned_folder(destination, BACKENDS_KIND, {"nvidia_pytriton": install.version}) as folder:
        python = folder / "python"
        python.mkdir()
        for name in ("libtriton_python.so", "triton_python_backend_utils.py"):
            shutil.copyfile(install.python_backend / name, python / name)
        shutil.copyfile(install.stub, python / STUB_NAME)
        (python / STUB_NAME).chmod(0o755)
        local = folder / LOCAL_BACKEND
        local.mkdir()
        write_serve_package(local, BACKEND_MODULE)
    return destination.absolute()


def _check_platform() -> None:
    remedy = "Run it on Linux (x86-64 or aarch64, glibc 2.35 or newer, for example Debian 12 or Ubuntu 22.04)."
    machine = platform.machine()
    if sys.platform != "linux" or machine not in MACHINES:
        raise EnvironmentMissing(
            f"The embedded Triton server runs on Linux x86-64 and aarch64 only, this is {sys.platform} {machine}.",
            remedy=remedy,
        )
    glibc = _read_glibc()
    if glibc is None or glibc < MIN_GLIBC:
        shown = "another C library" if glibc is None else f"glibc {glibc[0]}.{glibc[1]}"
        raise EnvironmentMissing(
            f"The embedded Triton server needs glibc {MIN_GLIBC[0]}.{MIN_GLIBC[1]} or newer, this machine has {shown}.",
            remedy=remedy,
        )


def _read_glibc() -> tuple[int, int] | None:
    """Return the version of the C library, None where it is not glibc (musl)."""
    try:
        name, version = (os.confstr("CS_GNU_LIBC_VERSION") or "").split()
        major, minor = version.split(".")[:2]
        return (int(major), int(minor)) if name == "glibc" else None
    except (ValueError, OSError):
        return None


def _find_python_bin() -> Path:
    """Return the folder of the running interpreter; it must be there under the name that the stub looks for."""
    folder = Path(sys.executable).parent
    python = folder / "python3"
    if not sys.executable or not python.exists() or python.resolve() != Path(sys.executable).resolve():
        raise EnvironmentMissing(
            f"{folder} has no python3 that is the running interpreter, and Triton takes its Python from there.",
            remedy="Install trtspec into a virtual environment (`python3 -m venv .venv`) and run it from there.",
        )
    return folder
