"""Errors as the OpenAI API words them: a status and an object that says what was wrong with what."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

INVALID = "invalid_request_error"
SERVER = "server_error"
RETRY_AFTER_S = 1
"""What a client is asked to wait where the queue is full: places come free with every answer that ends."""


class ApiError(Exception):
    """A refusal or failure; ``param`` names the field that caused it, ``code`` is for programs."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        kind: str = INVALID,
        param: str | None = None,
        code: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.headers = dict(headers or {})
        self._object = {"message": message, "type": kind, "param": param, "code": code}

    def body(self) -> dict[str, Any]:
        return {"error": self._object}


def bad_request(message: str, param: str | None = None, code: str | None = None) -> ApiError:
    return ApiError(400, message, param=param, code=code)


def too_long(message: str, param: str) -> ApiError:
    """The prompt, or the prompt and its answer, do not fit."""
    return bad_request(message, param, "context_length_exceeded")


def unavailable(message: str) -> ApiError:
    """Triton does not answer now."""
    headers = {"Retry-After": str(RETRY_AFTER_S)}
    return ApiError(503, message, kind=SERVER, code="service_unavailable", headers=headers)


def busy(message: str) -> ApiError:
    """More requests are waiting than the deployment holds."""
    headers = {"Retry-After": str(RETRY_AFTER_S)}
    return ApiError(429, message, kind="rate_limit_error", code="rate_limit_exceeded", headers=headers)
