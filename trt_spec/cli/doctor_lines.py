"""The lines of ``trtspec doctor`` on a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trt_spec.build.doctor.check import BACKENDS, Diagnosis

if TYPE_CHECKING:
    from rich.console import Console

    from trt_spec.spec.model import Backend

STYLES = {"green": "green", "amber": "yellow", "red": "red"}
INDENT = " " * 6


def print_diagnosis(diagnosis: Diagnosis, backend: Backend | None, console: Console) -> None:
    """Two lines a check, then which backends work; those of one ``backend`` alone if it is given."""
    from rich.markup import escape

    for check in diagnosis.checks:
        if backend is not None and backend not in check.concerns:
            continue
        colour = f"[{STYLES[check.colour]}]{check.colour:5}[/]"
        console.print(f"{colour} [bold]{escape(check.name)}[/]: {escape(check.found)}", highlight=False, soft_wrap=True)
        text = f"{INDENT}{', '.join(check.concerns)}: {check.meaning} {check.remedy}".rstrip()
        style = "dim" if check.colour == "green" else None
        console.print(escape(text), style=style, highlight=False, soft_wrap=True)
    for name in BACKENDS if backend is None else (backend,):
        obstacles = ", ".join(check.name for check in diagnosis.find_obstacles(name))
        verdict, style = (f"does not work here: {obstacles}", "red") if obstacles else ("works here", "green")
        console.print(f"{name}: {escape(verdict)}", style=style, highlight=False, soft_wrap=True)
