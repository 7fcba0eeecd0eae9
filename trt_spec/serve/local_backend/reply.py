"""The responses of one request: several sequences share its sender, and exactly one response is the final one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..server_log import log_error
from ..triton_request import BadRequest
from .batcher import RequestCancelled

Outputs = Callable[[], dict[str, Any]]
"""Makes the arrays of a response by name, when it is sent."""


class Reply:
    """Sends what the ``sequences`` of a request have to say. For one thread; nothing raises."""

    def __init__(self, triton: Any, sender: Any, sequences: int = 1) -> None:
        self._triton = triton
        self._sender = sender
        self._left = sequences

    @property
    def is_over(self) -> bool:
        return self._left == 0

    def part(self, outputs: Outputs) -> None:
        """A response that others of the same sequence follow."""
        if not self.is_over:
            self._send(lambda: self._response(outputs()), is_final=False)

    def last(self, outputs: Outputs) -> None:
        """The last response of a sequence."""
        if not self.is_over:
            self._left -= 1
            self._send(lambda: self._response(outputs()), is_final=self.is_over)

    def fail(self, error: Exception) -> None:
        """Ends the whole request with ``error``, unless it has ended."""
        if not self.is_over:
            self._left = 0
            self._send(lambda: self._failure(error), is_final=True)

    def _response(self, outputs: dict[str, Any]) -> Any:
        return self._triton.InferenceResponse([self._triton.Tensor(name, value) for name, value in outputs.items()])

    def _send(self, response: Callable[[], Any], *, is_final: bool) -> None:
        """An answer that cannot be made or sent (shared memory is full) becomes an error, and ends the request."""
        final = self._triton.TRITONSERVER_RESPONSE_COMPLETE_FINAL
        try:
            self._sender.send(response(), flags=final if is_final else 0)
        except Exception as error:  # noqa: BLE001 - the thread must outlive any request
            self._left = 0
            log_error(self._triton, f"an answer could not be sent: {error!r}")
            try:
                self._sender.send(self._error(f"the answer could not be sent: {error}"), flags=final)
            except Exception as again:  # noqa: BLE001 - nothing is left to try
                log_error(self._triton, f"nor could the error: {again!r}")

    def _failure(self, error: Exception) -> Any:
        """The response that tells the client of ``error``."""
        codes = self._triton.TritonError
        if isinstance(error, BadRequest):
            return self._error(str(error), codes.INVALID_ARG)
        if isinstance(error, RequestCancelled):
            return self._error("cancelled", codes.CANCELLED)
        log_error(self._triton, f"engine failure: {error!r}")
        return self._error(f"the engine failed: {error}")

    def _error(self, message: str, code: Any = None) -> Any:
        triton = self._triton
        code = triton.TritonError.INTERNAL if code is None else code
        return triton.InferenceResponse(error=triton.TritonError(message, code))
