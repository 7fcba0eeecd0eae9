"""The local engine's Triton model, which also writes down when each call came and when it was answered.

Copied as model.py into a backend directory. TRACE_FOLDER/MODEL is an int64 array [MAX_CALLS, 2], one row a call, zeros
behind the last: nanoseconds of the machine's monotonic clock at which the engine had the request, and at which its
answer was computed. What lies between two calls is the orchestrator's, and Triton's way there and back. The file is
mapped, because writing it would be part of what is measured.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from trtspec_serve.local_backend.backend_model import TritonPythonModel as Engine

TRACE_FOLDER = "TRTSPEC_TRACE_FOLDER"
MAX_CALLS = 1 << 18


class Trace:
    def __init__(self, file: Path) -> None:
        self._rows: NDArray[np.int64] = np.memmap(file, np.int64, "w+", shape=(MAX_CALLS, 2))
        self._count = 0

    def add(self, arrival_ns: int, answered_ns: int) -> None:
        """IndexError once there have been MAX_CALLS."""
        self._rows[self._count] = arrival_ns, answered_ns
        self._count += 1


class TritonPythonModel(Engine):
    def initialize(self, args: dict[str, str]) -> None:
        super().initialize(args)
        self._trace = Trace(Path(os.environ[TRACE_FOLDER], args["model_name"]))

    def execute(self, requests: list[Any]) -> None:
        now = time.monotonic_ns()
        super().execute([TracedRequest(request, now, self._trace) for request in requests])


class TracedRequest:
    """A request whose response sender tells of the answer."""

    def __init__(self, request: Any, arrival_ns: int, trace: Trace) -> None:
        self._request = request
        self._arrival_ns = arrival_ns
        self._trace = trace

    def __getattr__(self, name: str) -> Any:
        return getattr(self._request, name)

    def get_response_sender(self) -> TracedSender:
        return TracedSender(self._request.get_response_sender(), self._arrival_ns, self._trace)


class TracedSender:
    def __init__(self, sender: Any, arrival_ns: int, trace: Trace) -> None:
        self._sender = sender
        self._arrival_ns = arrival_ns
        self._trace = trace

    def send(self, *response: Any, flags: int = 0) -> None:
        answered_ns = time.monotonic_ns()
        self._sender.send(*response, flags=flags)
        if flags:
            self._trace.add(self._arrival_ns, answered_ns)
