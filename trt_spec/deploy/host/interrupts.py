"""Signals while a server starts or runs: it has a session of its own and would outlive a killed parent."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType


def interrupting_signals() -> contextlib.AbstractContextManager[None]:
    """SIGTERM and SIGHUP raise KeyboardInterrupt meanwhile, as Ctrl-C does. Main thread only, else nothing changes."""
    return _handled(signal.default_int_handler, (signal.SIGTERM, signal.SIGHUP))


@contextlib.contextmanager
def deferred_signals() -> Iterator[None]:
    """Ctrl-C, SIGTERM and SIGHUP take effect after the block."""
    arrived: list[int] = []
    with _handled(lambda number, _frame: arrived.append(number), (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)):
        yield
    for number in arrived:
        signal.raise_signal(number)


@contextlib.contextmanager
def _handled(handler: Callable[[int, FrameType | None], None], numbers: tuple[signal.Signals, ...]) -> Iterator[None]:
    """Give these signals a handler for a block; only the main thread can, and ignored ones stay so (nohup)."""
    before = {}
    if threading.current_thread() is threading.main_thread():
        before = {number: known for number in numbers if (known := signal.getsignal(number)) is not signal.SIG_IGN}
    for number in before:
        signal.signal(number, handler)
    try:
        yield
    finally:
        for number, known in before.items():
            signal.signal(number, known)
