"""Where NVIDIA's tools run: in this environment if it has exactly the right version, else in the pinned container."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Literal

from trt_spec.errors import EnvironmentMissing
from trt_spec.plan.engine_record import SeenGpu
from trt_spec.plan.toolchain import Profile

Runtime = Literal["docker", "podman"]

RUNTIMES: tuple[Runtime, ...] = ("docker", "podman")
PACKAGE = "tensorrt_llm"
BUILDER = "trtllm-build"
INFO_TIMEOUT_S = 20.0
REMOVE_TIMEOUT_S = 120.0
LABEL = "trtspec.workspace"
_LABEL_CHARACTERS = 16


@dataclass(frozen=True)
class Toolchain:
    """``runtime`` is None where the tools run natively."""

    profile: Profile
    runtime: Runtime | None

    @property
    def place(self) -> str:
        """In words, for people and manifests."""
        return "this environment" if self.runtime is None else f"{self.profile.container} ({self.runtime})"


def find_installed_version() -> str | None:
    """The installed TensorRT-LLM, None if there is none. It is not imported: that takes a minute and a GPU."""
    try:
        return version(PACKAGE)
    except PackageNotFoundError:
        return None


def resolve_toolchain(profile: Profile, gpus: Sequence[SeenGpu], needs_quantizer: bool) -> Toolchain:
    """Natively with exactly the profile's version, its programs and a GPU; otherwise docker, otherwise podman.

    Raises EnvironmentMissing if neither is there; a client that reaches no daemon counts as absent.
    """
    if is_native(profile, needs_quantizer) and gpus:
        return Toolchain(profile, None)
    silent = []
    for runtime in RUNTIMES:
        if shutil.which(runtime) is None:
            continue
        if _answers(runtime):
            return Toolchain(profile, runtime)
        silent.append(runtime)
    raise EnvironmentMissing(
        f"TensorRT-LLM {profile.version} is not usable here: {_describe_native(profile, gpus)}, and "
        f"{_describe_silent(silent)}.",
        remedy=f"Install docker with NVIDIA's container toolkit (image {profile.container}), or run trtspec inside "
        "that container; `trtspec build SPEC --print-script` writes the steps for another host.",
    )


def guess_toolchain(profile: Profile, needs_quantizer: bool) -> Toolchain:
    """What ``resolve_toolchain`` would probably choose, asking no program and no GPU."""
    if is_native(profile, needs_quantizer):
        return Toolchain(profile, None)
    return Toolchain(profile, next((name for name in RUNTIMES if shutil.which(name)), RUNTIMES[0]))


def is_native(profile: Profile, needs_quantizer: bool) -> bool:
    """Whether exactly the profile's TensorRT-LLM is installed, with the programs that a build needs of it."""
    has_quantizer = not needs_quantizer or Path(profile.quantizer_path).is_file()
    return find_installed_version() == profile.version and _has_builder() and has_quantizer


def program_path() -> str:
    """PATH with this Python's own programs in front: an environment works without being activated, too."""
    return os.pathsep.join(filter(None, (str(Path(sys.executable).parent), os.environ.get("PATH"))))


def _has_builder() -> bool:
    return shutil.which(BUILDER, path=program_path()) is not None


def _describe_native(profile: Profile, gpus: Sequence[SeenGpu]) -> str:
    found = find_installed_version()
    if found is None:
        return f"no {PACKAGE} is installed"
    if found != profile.version:
        return f"version {found} is installed"
    if not _has_builder():
        return f"it is installed without the program {BUILDER}"
    return (
        f"it is installed without {profile.quantizer_path}" if gpus else "it is installed, but nvidia-smi sees no GPU"
    )


def _describe_silent(silent: Sequence[str]) -> str:
    if not silent:
        return f"there is no {' or '.join(RUNTIMES)}"
    return f"{' and '.join(silent)} is there but reaches no daemon (`{silent[0]} info` fails)"


def _answers(runtime: Runtime) -> bool:
    try:
        subprocess.run([runtime, "info"], capture_output=True, timeout=INFO_TIMEOUT_S, check=True)
    except (OSError, subprocess.SubprocessError):
        return False
    return True


def workspace_label(workspace: Path) -> str:
    """What marks the containers of one workspace."""
    return f"{LABEL}={hashlib.sha256(str(workspace).encode()).hexdigest()[:_LABEL_CHARACTERS]}"


def remove_containers(runtime: Runtime, workspace: Path) -> list[str]:
    """Remove what killed builds of this workspace left running; the ids of the containers."""
    query = [runtime, "ps", "--all", "--quiet", "--filter", f"label={workspace_label(workspace)}"]
    try:
        listed = subprocess.run(query, capture_output=True, text=True, timeout=REMOVE_TIMEOUT_S, check=True)
        ids = listed.stdout.split()
        if ids:
            remove = [runtime, "rm", "--force", *ids]
            subprocess.run(remove, capture_output=True, timeout=REMOVE_TIMEOUT_S, check=True)
    except (OSError, subprocess.SubprocessError) as error:
        raise EnvironmentMissing(
            f"{runtime} does not list or remove the containers of an earlier build: {error}.",
            remedy=f"Look at `{runtime} ps` and remove those labelled {workspace_label(workspace)}.",
        ) from None
    return ids
