"""What the user says about the place that a repository or engine is meant for."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path

from trt_spec.errors import SpecError
from trt_spec.plan.hardware import GPUS
from trt_spec.plan.manifest import load_manifest
from trt_spec.plan.workspace import Workspace

_GPUS_FORM = re.compile(r"(?P<only>\d{1,6})|(?:(?P<count>\d{1,6})x)?(?P<model>[A-Za-z]\w*)", re.ASCII)
_MODELS = {str(name): name for name in GPUS if name != "generic"}  # that one is no product


@dataclass(frozen=True)
class CheckOptions:
    """None where it is not known. ``tensorrt_llm`` is a version, or a recorded Triton container that holds one."""

    tensorrt_llm: str | None = None
    concurrency: int | None = None
    mounts: tuple[tuple[str, Path], ...] = ()  # path prefix in the container -> folder here
    visible_gpus: int | None = None
    compute_capability: str | None = None  # "9.0" for SM 90
    trust_remote_code: bool = False

    def locate(self, named: str) -> Path | None:
        """Return where a path of the repository lies on this machine: behind the longest matching mount, else as named.

        None for a relative path, which counts from wherever Triton is started, and for one that no file can have.
        """
        if not named.startswith("/") or "\0" in named:
            return None
        for prefix, here in sorted(self.mounts, key=lambda mount: len(mount[0]), reverse=True):
            inside = prefix.rstrip("/")
            if named == inside or named.startswith(f"{inside}/"):
                return here / named[len(inside) :].lstrip("/")
        return Path(named)


def parse_gpus(text: str) -> tuple[int | None, str | None]:
    """Return number and compute capability of GPUs given as "8", "H200" or "8xH200"; None for what is left out.

    Raises SpecError for a model of unknown architecture and for anything else.
    """
    match = _GPUS_FORM.fullmatch(text)
    if match is None or (match["model"] and match["model"] not in _MODELS):
        raise SpecError(
            f"{text!r} are no GPUs that are known.",
            remedy=f"Give their number, their model or both, such as 8xH200; models: {', '.join(_MODELS)}.",
        )
    count = match["count"] or match["only"]
    return int(count) if count else None, GPUS[_MODELS[match["model"]]].sm if match["model"] else None


def complete_gpus(options: CheckOptions, path: Path) -> CheckOptions:
    """Return the options with the GPUs of the spec, where ``path`` lies in a built workspace and none are named."""
    if options.compute_capability is not None:
        return options
    for around in path.absolute().parents[:2]:
        workspace = Workspace(around)
        if not workspace.manifest.is_file():
            continue
        try:
            hardware = load_manifest(workspace).spec.hardware
        except (SpecError, OSError):
            continue
        if hardware is not None and hardware.gpu in _MODELS:
            return replace(options, compute_capability=GPUS[hardware.gpu].sm)
    return options
