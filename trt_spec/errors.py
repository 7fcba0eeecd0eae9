"""The exceptions trtspec raises on purpose, one class per exit code.

    TrtspecError
    +-- SpecError            2  the spec, the usage or an input file is wrong: the user changes it
    +-- EnvironmentMissing   3  the machine lacks something: the user installs or frees it
    +-- StepFailed           1  a step of the pipeline ran and failed: see its log
    +-- VerifyFailed         4  everything ran, but the result is below its threshold

Each carries what was found and a remedy; the command line prints both as one paragraph and exits with ``exit_code``.
"""

from __future__ import annotations

from pathlib import Path


class TrtspecError(Exception):
    """Base of all expected failures; ``str(error)`` is one paragraph: what was found, then what to do."""

    exit_code = 1

    def __init__(self, found: str, *, remedy: str = "") -> None:
        super().__init__(f"{found} {remedy}".strip())
        self.found = found
        self.remedy = remedy


class SpecError(TrtspecError):
    """The spec, the command's usage or a file it names is wrong."""

    exit_code = 2


class EnvironmentMissing(TrtspecError):
    """A program, package, port or device that the command needs is not there."""

    exit_code = 3


class StepFailed(TrtspecError):
    """A step ran and failed; ``log_path`` holds everything it printed."""

    exit_code = 1

    def __init__(
        self,
        found: str,
        *,
        remedy: str = "",
        step: str = "",
        command: tuple[str, ...] = (),
        code: int | None = None,
        log_path: Path | None = None,
    ) -> None:
        super().__init__(found, remedy=remedy)
        self.step = step
        self.command = command
        self.code = code
        self.log_path = log_path


class VerifyFailed(TrtspecError):
    """The deployment answers, but its output or its acceptance is not what was promised."""

    exit_code = 4
