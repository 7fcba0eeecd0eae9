"""Fetching a hub model at a pinned commit, in a process of its own: a download of hours must end when asked to.

    python -m trt_spec.build.engine.fetch MODEL REVISION FOLDER

An interrupted download goes on in the same folder. The process reads the hub's token from its login or environment; no
command line has it.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

from trt_spec.errors import EnvironmentMissing, SpecError, StepFailed, TrtspecError

MODULE = "trt_spec.build.engine.fetch"
COMMIT_FILE = "commit"
_FAULTS: dict[str, type[TrtspecError]] = {"SpecError": SpecError, "EnvironmentMissing": EnvironmentMissing}


def fetch_command(model: str, revision: str | None, folder: Path) -> tuple[str, ...]:
    """The command line of the process; an empty revision is the newest commit of the main branch."""
    return (sys.executable, "-m", MODULE, model, revision or "", str(folder))


def read_commit(folder: Path) -> str:
    """The commit that was fetched into ``folder``."""
    return (folder.parent / COMMIT_FILE).read_text(encoding="utf-8").strip()


def read_fault(last_line: str) -> TrtspecError | None:
    """What the process said of its failure, None if it said nothing."""
    try:
        fault: dict[str, Any] = json.loads(last_line)
        return _FAULTS.get(fault["fault"], StepFailed)(fault["found"], remedy=fault["remedy"])
    except (ValueError, KeyError, TypeError):
        return None


def main(arguments: list[str]) -> int:
    """Download, then write the commit beside the folder; the exit code is that of the error, if any."""
    from trt_spec.build.source.hub import download_snapshot

    model, revision, folder = arguments[0], arguments[1] or None, Path(arguments[2])
    try:
        commit = download_snapshot(model, revision, folder, lambda text: print(text, flush=True))
    except TrtspecError as error:
        fault = {"fault": type(error).__name__, "found": error.found, "remedy": error.remedy}
        print(json.dumps(fault), flush=True)
        return error.exit_code
    shutil.rmtree(folder / ".cache", ignore_errors=True)  # the hub client's own notes for going on
    (folder.parent / COMMIT_FILE).write_text(commit + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
