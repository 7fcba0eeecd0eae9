"""Where the outputs of one spec lie."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

WORKSPACES = "workspace"
HEADS = "heads"
"""What downloaded Medusa heads are called where a role's name stands otherwise."""


@dataclass(frozen=True)
class Workspace:
    """Paths below ``root``; nothing is created here."""

    root: Path

    @property
    def manifest(self) -> Path:
        return self.root / "manifest.json"

    @property
    def repository(self) -> Path:
        return self.root / "repository"

    @property
    def reports(self) -> Path:
        return self.root / "reports"

    @property
    def logs(self) -> Path:
        """What the tools printed, a file for every attempt of a step."""
        return self.root / "logs"

    def source(self, role: str) -> Path:
        """The downloaded Hugging Face checkpoint of a hub model."""
        return self.root / "sources" / role

    def checkpoint(self, role: str) -> Path:
        """The TensorRT-LLM checkpoint that trtllm-build reads."""
        return self.root / "checkpoints" / role

    def engine(self, role: str) -> Path:
        return self.root / "engines" / role


def resolve_workspace(name: str, root: Path | None = None) -> Workspace:
    """The workspace at ``root``, or the default one of the spec called ``name``: ./workspace/NAME."""
    return Workspace((root or Path(WORKSPACES, name)).absolute())
