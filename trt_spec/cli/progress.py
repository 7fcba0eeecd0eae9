"""Progress of long steps on stderr: a bar on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import sys
import time
from types import TracebackType

import click

LINE_EVERY_S = 5.0


class StepProgress:
    """``report(text, fraction)`` may be called as often as wanted; fraction None means "cannot be known"."""

    def __init__(self) -> None:
        self._bar = None
        if sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

            columns = TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn()
            self._bar = Progress(*columns, console=Console(stderr=True), transient=True)
            self._task = self._bar.add_task("", total=None)
        self._next_line_s: dict[str, float] = {}

    def __enter__(self) -> StepProgress:
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def report(self, text: str, fraction: float | None = None) -> None:
        if self._bar is not None:
            self._bar.update(self._task, description=text, total=None if fraction is None else 1.0, completed=fraction)
            return
        # Steps that run side by side report in turn: each gets a line now and then, by what stands before the colon.
        key, now = text.partition(":")[0], time.monotonic()
        if now >= self._next_line_s.get(key, 0.0):
            click.echo(text if fraction is None else f"{text}: {fraction:.0%}", err=True)
            self._next_line_s[key] = now + LINE_EVERY_S
