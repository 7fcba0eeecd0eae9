"""Reading a machine: the only module of the doctor that looks at it. What cannot be read is a fault in the reading."""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from trt_spec.build.doctor.extras import find_missing, find_version
from trt_spec.build.doctor.machine import GpuReading, Machine, NvidiaReading, Place, Runtime
from trt_spec.build.doctor.tools import TOKEN_VARIABLES, Answer, run_tool
from trt_spec.build.engine.host import read_available_memory_bytes
from trt_spec.plan.all_reduce import parse_topology
from trt_spec.plan.hardware import MIB

KIB = 1024
RUNTIMES = ("docker", "podman")
TOOLKIT_PROGRAMS = ("nvidia-ctk", "nvidia-container-runtime-hook", "nvidia-container-toolkit")
CDI_FOLDERS = (Path("/etc/cdi"), Path("/var/run/cdi"))
BUILDER = "trtllm-build"
DRIVER_FILE = Path("/proc/driver/nvidia/version")
SHARED_MEMORY = Path("/dev/shm")

_GPU_FIELDS = ("index", "name", "memory.total", "driver_version", "compute_cap")
_DF_ABSENT = ("No such file", "can't find mount point")  # GNU and busybox
_DF_LINE = re.compile(r"\s(\d+)\s+(\d+)\s+(-?\d+)\s+(?:\d+%|-)\s")
_DRIVER_LINE = re.compile(r"NVRM version:.*?\s(\d+(?:\.\d+)+)\s")


def read_machine(workspace: Path, cache_dir: Path) -> Machine:
    """Read this machine; ``workspace`` and ``cache_dir`` are where builds will write, and need not exist yet.

    Takes as long as the slowest program, at most its time limit; nothing is written.
    """
    with ThreadPoolExecutor() as pool:
        nvidia = pool.submit(read_nvidia)
        runtimes = [pool.submit(read_runtime, name) for name in RUNTIMES]
        folders = (("shared memory", SHARED_MEMORY), ("workspace", workspace), ("cache", cache_dir))
        places = [pool.submit(read_place, label, path) for label, path in folders]
        shared_memory, *disks = (place.result() for place in places)
        return Machine(
            system=sys.platform,
            architecture=platform.machine(),
            python=platform.python_version(),
            c_library=_read_c_library(),
            nvidia=nvidia.result(),
            runtimes=tuple(runtime.result() for runtime in runtimes),
            toolkit=next((path for name in TOOLKIT_PROGRAMS if (path := shutil.which(name))), None),
            memory_bytes=read_available_memory_bytes(),
            shared_memory=shared_memory,
            places=tuple(disks),
            hub_login=find_hub_login(os.environ, Path.home()),
            missing=find_missing(),
            tensorrt_llm=find_version("tensorrt_llm"),
            has_builder=shutil.which(BUILDER) is not None,
        )


def read_nvidia() -> NvidiaReading:
    """The driver, the GPUs and their links, by nvidia-smi."""
    answer = _query_gpus(_GPU_FIELDS)
    if answer.fault and "compute_cap" in answer.text + answer.fault:
        answer = _query_gpus(_GPU_FIELDS[:-1])  # drivers before 510 do not know the field
    rows = [[cell.strip() for cell in line.split(",")] for line in answer.text.splitlines()]
    rows = [row for row in rows if len(row) >= len(_GPU_FIELDS) - 1 and row[0].isdigit()]
    if answer.fault or not rows:
        return NvidiaReading(driver=_read_driver_file(), fault=answer.fault or "nvidia-smi lists no GPU")
    gpus = tuple(_parse_gpu(row) for row in rows)
    links = peers = None
    if len(gpus) > 1:
        links = parse_topology(run_tool(("nvidia-smi", "topo", "-m")).text) or None
        peers = parse_topology(run_tool(("nvidia-smi", "topo", "-p2p", "r")).text) or None
    return NvidiaReading(driver=rows[0][3], gpus=gpus, links=links, peers=peers)


def _query_gpus(fields: tuple[str, ...]) -> Answer:
    return run_tool(("nvidia-smi", f"--query-gpu={','.join(fields)}", "--format=csv,noheader,nounits"))


def _parse_gpu(row: list[str]) -> GpuReading:
    """Where the driver has no figure it prints "[N/A]" or "[Not Supported]"."""
    capability = row[4] if len(row) > len(_GPU_FIELDS) - 1 else ""
    return GpuReading(
        index=int(row[0]),
        name=row[1],
        memory_bytes=int(row[2]) * MIB if row[2].isdigit() else None,
        compute_capability=capability if re.fullmatch(r"\d+\.\d+", capability) else None,
    )


def _read_driver_file() -> str | None:
    """The version of the loaded kernel module, where nvidia-smi is of no help."""
    found = _DRIVER_LINE.search(_read_text(DRIVER_FILE))
    return found[1] if found else None


def read_runtime(name: str) -> Runtime:
    """A runtime counts by what its daemon says; podman, which needs none, by its own report."""
    answer = run_tool((name, "info", "--format", "{{json .}}"))
    report = _parse_object(answer.text)
    host = report.get("host")  # podman's report, also where podman answers to the name of docker
    is_podman = isinstance(host, dict)
    version = _get(report, "version", "Version") if is_podman else report.get("ServerVersion")
    if not version:
        errors = report.get("ServerErrors") or []
        said = answer.fault or (str(errors[0]) if errors else "its daemon does not answer")
        return Runtime(name, fault=said)
    listed = {} if is_podman else report.get("Runtimes") or {}
    return Runtime(name, str(version), sees_gpus="nvidia" in listed or _has_cdi_spec())


def _has_cdi_spec() -> bool:
    """Whether the toolkit has described the GPUs to runtimes that read container device interface files."""
    return any(folder.is_dir() and any(folder.glob("*nvidia*")) for folder in CDI_FOLDERS)


def read_place(label: str, path: Path) -> Place:
    """Free space for ordinary users at ``path`` or its nearest existing parent, by df: a dead mount cannot hang us."""
    path = path.absolute()
    for candidate in (path, *path.parents):
        answer = run_tool(("df", "-P", "-k", "--", str(candidate)))
        if found := _DF_LINE.search(answer.text):
            free_bytes = max(0, int(found[3])) * KIB
            return Place(label, str(candidate), free_bytes, os.access(candidate, os.W_OK | os.X_OK))
        if not any(words in (answer.fault or "") for words in _DF_ABSENT):
            return Place(label, str(candidate), None, False, answer.fault or "df has no answer")
    return Place(label, str(path), None, False, "it does not exist")


def find_hub_login(environment: Mapping[str, str], home: Path) -> str | None:
    """Where the Hugging Face hub's token lies; the token itself is only looked at for being there."""
    for variable in TOKEN_VARIABLES:
        if environment.get(variable, "").strip():
            return f"${variable}"
    cache = Path(environment.get("XDG_CACHE_HOME") or home / ".cache")
    hub_home = Path(environment.get("HF_HOME") or cache / "huggingface").expanduser()
    path = Path(environment.get("HF_TOKEN_PATH") or hub_home / "token").expanduser()
    return str(path) if _read_text(path).strip() else None


def _read_c_library() -> str | None:
    try:
        return os.confstr("CS_GNU_LIBC_VERSION")
    except (ValueError, OSError):
        return None


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _parse_object(text: str) -> dict[str, Any]:
    try:
        document = json.loads(text)
    except ValueError:
        return {}
    return document if isinstance(document, dict) else {}


def _get(report: Mapping[str, Any], outer: str, inner: str) -> Any:
    value = report.get(outer)
    return value.get(inner) if isinstance(value, dict) else None
