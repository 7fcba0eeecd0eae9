"""What is read of a machine before anything is judged. No field ever holds a secret: of a login, only where it lies."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

Links = Mapping[tuple[int, int], str]
"""By pair of GPUs, lower index first."""


@dataclass(frozen=True)
class GpuReading:
    """One GPU as its driver reports it; None is what the driver does not tell."""

    index: int
    name: str
    memory_bytes: int | None
    compute_capability: str | None


@dataclass(frozen=True)
class NvidiaReading:
    """``fault`` is why no GPU could be read; ``links`` are NV18, PIX, ...; ``peers`` is OK where peer reads work."""

    driver: str | None = None
    gpus: tuple[GpuReading, ...] = ()
    links: Links | None = None
    peers: Links | None = None
    fault: str | None = None


@dataclass(frozen=True)
class Runtime:
    """A container runtime. ``fault`` is why it starts none; ``sees_gpus`` whether it lists NVIDIA's runtime."""

    name: str
    version: str | None = None
    sees_gpus: bool = False
    fault: str | None = None


@dataclass(frozen=True)
class Place:
    """A folder to write to, or its nearest existing parent; ``free_bytes`` is None where df has no answer."""

    label: str
    path: str
    free_bytes: int | None
    is_writable: bool
    fault: str | None = None


@dataclass(frozen=True)
class Machine:
    """Everything that is judged.

    ``c_library`` is "glibc 2.36" or None for another one. ``memory_bytes`` is what a build can
    use now. ``toolkit`` is the program of the NVIDIA container toolkit that was found. ``hub_login`` says where a
    token lies. ``missing`` are the requirements of each extra that are not met, None where trtspec is no installed
    package. ``tensorrt_llm`` is the version installed beside trtspec, ``has_builder`` whether trtllm-build is on PATH.
    """

    system: str
    architecture: str
    python: str
    c_library: str | None
    nvidia: NvidiaReading
    runtimes: tuple[Runtime, ...]
    toolkit: str | None
    memory_bytes: int | None
    shared_memory: Place
    places: tuple[Place, ...]
    hub_login: str | None
    missing: Mapping[str, tuple[str, ...]] | None
    tensorrt_llm: str | None
    has_builder: bool


@dataclass(frozen=True)
class EmbeddedTriton:
    """The Triton server of the nvidia-pytriton wheel; ``fault`` is why it cannot be used."""

    version: str | None = None
    fault: str | None = None
    remedy: str = ""
