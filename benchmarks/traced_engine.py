"""The local engine's Triton model, which also writes down when each call came and when it was answered.

Copied as model.py into a backend directory. Every call is one line in TRACE_FOLDER/MODEL: nanoseconds of the machine's
monotonic clock at which the engine had the request, and at which its answer was computed. What lies between two calls
is the orchestrator's, and Triton's way there and back.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any, TextIO

from trtspec_serve.local_backend.backend_model import TritonPythonModel as Engine

TRACE_FOLDER = "TRTSPEC_TRACE_FOLDER"


class TritonPythonModel(Engine):
    def initialize(self, args: dict[str, str]) -> None:
        super().initialize(args)
        file = Path(os.environ[TRACE_FOLDER], args["model_name"])
        self._trace = file.open("w", encoding="ascii", buffering=1)

    def execute(self, requests: list[Any]) -> None:
        now = time.monotonic_ns()
        super().execute([TracedRequest(request, now, self._trace) for request in requests])


class TracedRequest:
    """A request whose response sender tells of the answer."""

    def __init__(self, request: Any, arrival_ns: int, trace: TextIO) -> None:
        self._request = request
        self._arrival_ns = arrival_ns
        self._trace = trace

    def __getattr__(self, name: str) -> Any:
        return getattr(self._request, name)

    def get_response_sender(self) -> TracedSender:
        return TracedSender(self._request.get_response_sender(), self._arrival_ns, self._trace)


class TracedSender:
    def __init__(self, sender: Any, arrival_ns: int, trace: TextIO) -> None:
        self._sender = sender
        self._arrival_ns = arrival_ns
        self._trace = trace

    def send(self, *response: Any, flags: int = 0) -> None:
        answered_ns = time.monotonic_ns()
        self._sender.send(*response, flags=flags)
        if flags:
            self._trace.write(f"{self._arrival_ns} {answered_ns}\n")
