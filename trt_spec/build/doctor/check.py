"""One line of the doctor: what was found, how bad it is, for which backends, and what to do about it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from trt_spec.spec.model import Backend

Colour = Literal["green", "amber", "red"]
"""Red stops a backend from working, amber slows it or leaves something out."""

BACKENDS: tuple[Backend, ...] = get_args(Backend)
GPU_BACKENDS: tuple[Backend, ...] = ("engine", "llmapi")


@dataclass(frozen=True)
class Check:
    """``meaning`` is what the finding means for the backends in ``concerns``; ``remedy`` is empty where all is well."""

    name: str
    colour: Colour
    found: str
    concerns: tuple[Backend, ...]
    meaning: str
    remedy: str = ""


@dataclass(frozen=True)
class Diagnosis:
    """All checks of one machine, for one version of TensorRT-LLM."""

    tensorrt_llm: str
    checks: tuple[Check, ...]

    def find_obstacles(self, backend: Backend) -> tuple[Check, ...]:
        """The red checks that concern a backend; it works here when there are none."""
        return tuple(check for check in self.checks if check.colour == "red" and backend in check.concerns)

    def is_usable(self, backend: Backend) -> bool:
        return not self.find_obstacles(backend)
