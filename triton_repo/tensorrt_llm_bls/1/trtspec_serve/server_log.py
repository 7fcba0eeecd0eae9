"""Triton's log, from a repository in a folder of any name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

# The Python backend reads the caller's file name, and raises RuntimeError for one that is not ASCII (seen in 24.10).
_call: Callable[[Callable[[str], None], str], None] = eval(compile("lambda log, text: log(text)", "trtspec", "eval"))


def log_info(triton: Any, message: str) -> None:
    """``triton`` is the module triton_python_backend_utils."""
    _call(triton.Logger.log_info, _spell(message))


def log_warning(triton: Any, message: str) -> None:
    _call(triton.Logger.log_warn, _spell(message))


def log_error(triton: Any, message: str) -> None:
    _call(triton.Logger.log_error, _spell(message))


def _spell(message: str) -> str:
    """Names of files may hold bytes that are no text."""
    return message.encode("utf-8", "backslashreplace").decode("utf-8")
