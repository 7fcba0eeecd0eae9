"""What is started for a server, wherever it runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from trt_spec.deploy.host.server import STOP_TIMEOUT_S


@dataclass(frozen=True)
class StartCommand:
    """A command line with its complete environment. ``container`` is the name of the one that it holds, if any.

    ``stop_timeout_s`` is what the server gets to end by itself.
    """

    argv: tuple[str, ...]
    environment: Mapping[str, str]
    container: str | None = None
    stop_timeout_s: float = STOP_TIMEOUT_S
