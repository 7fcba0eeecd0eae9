"""Machines as the doctor sees them, and a PATH that holds only what a test puts there."""

import shutil
from dataclasses import replace

import pytest

from trt_spec.build.doctor.machine import GpuReading, Machine, NvidiaReading, Place, Runtime
from trt_spec.plan.hardware import GIB, MIB

H200 = GpuReading(0, "NVIDIA H200", 143771 * MIB, "9.0")
PAIRS = [(first, second) for first in range(4) for second in range(first + 1, 4)]


def place(label, free_bytes=8000 * GIB, **fields):
    return Place(label, f"/{label}", free_bytes, **{"is_writable": True, **fields})


@pytest.fixture
def gpu_host():
    """Four H200 joined by NVLink, docker with NVIDIA's runtime, nothing missing."""
    gpus = tuple(replace(H200, index=index) for index in range(4))
    nvidia = NvidiaReading("590.44.01", gpus, dict.fromkeys(PAIRS, "NV18"), dict.fromkeys(PAIRS, "OK"))
    return Machine(
        system="linux",
        architecture="x86_64",
        python="3.11.7",
        c_library="glibc 2.36",
        nvidia=nvidia,
        runtimes=(Runtime("docker", "28.2.2", sees_gpus=True), Runtime("podman", fault="podman is not on PATH")),
        toolkit="/usr/bin/nvidia-ctk",
        memory_bytes=2000 * GIB,
        shared_memory=Place("shared memory", "/dev/shm", 1000 * GIB, True),
        places=(place("workspace"), place("cache")),
        hub_login="$HF_TOKEN",
        missing=dict.fromkeys(("local", "client", "hub", "plot", "engine"), ()),
        tensorrt_llm=None,
        has_builder=False,
    )


@pytest.fixture
def laptop(gpu_host):
    """No GPU, a docker client without a daemon."""
    return replace(
        gpu_host,
        nvidia=NvidiaReading(fault="nvidia-smi is not on PATH"),
        runtimes=(Runtime("docker", fault="Cannot connect to the Docker daemon"),),
        toolkit=None,
        memory_bytes=16 * GIB,
        places=(place("workspace", 50 * GIB), place("cache", 50 * GIB)),
    )


@pytest.fixture
def programs(tmp_path, monkeypatch):
    """programs(name, script) puts a stand-in shell script on PATH, where nothing else is but df."""
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "df").symlink_to(shutil.which("df"))
    monkeypatch.setenv("PATH", str(folder))

    def add(name, script):
        path = folder / name
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)

    return add
