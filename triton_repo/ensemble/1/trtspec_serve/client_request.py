"""One request of Triton's from its arrival to its last response: who waits, what is counted, what the log is told."""

from __future__ import annotations

from functools import partial
from typing import Any

from .debug_log import DebugLog, wants_debug
from .metrics import OrchestratorMetrics, Outcome
from .server_log import log_error, log_info
from .waiting_client import WaitingClient


class ClientRequest:
    """``raw`` is Triton's own request; its response sender is used here alone."""

    def __init__(self, triton: Any, request: Any, metrics: OrchestratorMetrics) -> None:
        self._triton = triton
        self._sender = request.get_response_sender()
        self.raw = request
        self.client = WaitingClient(request)
        self.figures = metrics.follow()
        self.debug: DebugLog | None = None

    def open_log(self, model: str) -> None:
        """The log of this request, if its parameters ask for one."""
        if wants_debug(self.raw.parameters()):
            self.debug = DebugLog(partial(log_info, self._triton), model)

    def send_part(self, outputs: list[Any]) -> None:
        """New text of an answer that goes on."""
        self._sender.send(self._triton.InferenceResponse(outputs))
        self.figures.show_text()

    def send_last(self, outputs: list[Any], *, streams_text: bool) -> None:
        """The last response; ``streams_text`` if it brings text to a client that streams."""
        self.client.end()
        if streams_text:
            self.figures.show_text()
        self._end("answered")  # before the client can ask for it
        self._send_final(self._triton.InferenceResponse(outputs))

    def send_error(self, outcome: Outcome, error: Any) -> None:
        """An error as the last response."""
        self._end(outcome)
        try:
            self._send_final(self._triton.InferenceResponse(error=error))
        except Exception as failure:  # noqa: BLE001 - nothing is left to try
            log_error(self._triton, f"an error could not be sent: {failure!r}")

    def _send_final(self, response: Any) -> None:
        self._sender.send(response, flags=self._triton.TRITONSERVER_RESPONSE_COMPLETE_FINAL)

    def _end(self, outcome: Outcome) -> None:
        if self.figures.end(outcome) and self.debug is not None:
            self.debug.end(outcome)
