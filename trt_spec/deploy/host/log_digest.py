"""A failed start in a few lines: which of the many lines of Triton's log say what went wrong."""

from __future__ import annotations

import re
from pathlib import Path

DIGEST_LINES = 8
TAIL_BYTES = 1 << 20

# Every start on a machine without a GPU prints these; they explain nothing.
_NOISE = ("CudaDriverHelper", "Failed to initialize NVML", "DCGM", "pinned memory", "Unable to allocate pinned")
_STAMP = re.compile(r"^[EWIF]\d{4} [\d:.]+ \d+ [\w.]+:\d+\] ?")
_HOPELESS = "error while loading shared libraries"  # a model's process died at once; Triton waits for it regardless
_ERROR = re.compile(
    rf"^(E\d{{4}} |F\d{{4}} |error: |\[libprotobuf (ERROR|FATAL)|\[TensorRT-LLM\]\[ERROR\]|docker: |.*{_HOPELESS})"
)
_RANK = re.compile(r"^\[\d+,\d+\]<std(out|err)>: ?")  # mpirun --tag-output
# What the C++ backend wraps an engine's own error in, and where it was thrown.
_WRAPPING = re.compile(r"^(unexpected error when creating modelInstanceState: )?(\[TensorRT-LLM\]\[ERROR\] )?")
_LOADING = re.compile(r'"loading: (?P<model>[^"]+):\d+"')
_FINISHED = re.compile(r"(successfully loaded|failed to load) '(?P<model>[^']+)'")
_FAILED = re.compile(r"failed to load '(?P<model>[^']+)' version \d+: (?:\w[\w ]*: )?(?P<reason>.*)", re.DOTALL)
_CONSEQUENCES = ("depends on", "failed to load all models")


def read_log_tail(log: Path) -> str:
    """Return the end of a log file as text, at most 1 MiB; empty where there is none."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - TAIL_BYTES))
            return file.read().decode("utf-8", errors="replace")
    except OSError:
        return ""


def is_hopeless(text: str) -> bool:
    """Whether the log of a start tells of something that waiting cannot mend."""
    return _HOPELESS in text


def render_log_digest(text: str) -> str:
    """Return the lines of a Triton log that explain a failure, causes before consequences, at most 8.

    An error of a model is shown once, with the place in our code that raised it. Models that began to load and never
    finished come last. Falls back to the last lines.
    """
    causes: list[str] = []
    consequences: list[str] = []
    lines = [_RANK.sub("", line) for line in text.splitlines()]
    for line in lines:
        if not _ERROR.match(line) or _is_noise(line):
            continue
        shown = _clean(line)
        bucket = consequences if any(word in shown for word in _CONSEQUENCES) else causes
        if shown and not any(_says(other, shown) for other in bucket):
            bucket[:] = [other for other in bucket if not _says(shown, other)]
            bucket.append(shown)
    shown_lines = causes or consequences
    unfinished = find_unfinished_models(text)
    if unfinished:
        shown_lines = [*shown_lines, f"still loading: {', '.join(unfinished)}"]
    if not shown_lines:
        shown_lines = [line for line in lines if line.strip() and not _is_noise(line)]
        return "\n".join(shown_lines[-DIGEST_LINES:])
    return "\n".join(shown_lines[:DIGEST_LINES])


def drop_noise(text: str) -> str:
    """Return a Triton log without the lines that every start on a machine without a GPU prints."""
    return "\n".join(line for line in text.splitlines() if not _is_noise(line))


def find_unfinished_models(text: str) -> list[str]:
    """Return the models that began to load and neither failed nor finished, in the order of the log."""
    started = dict.fromkeys(match["model"] for match in _LOADING.finditer(text))
    finished = {match["model"] for match in _FINISHED.finditer(text)}
    return [model for model in started if model not in finished]


def _is_noise(line: str) -> bool:
    return any(word in line for word in _NOISE)


def _clean(line: str) -> str:
    """Strip time stamp, quotes and Triton's wrapping; of a traceback keep the innermost place."""
    line = _STAMP.sub("", line).strip().strip('"').replace("\\n", "\n")
    if line.startswith("[libprotobuf"):
        line = line.partition("] ")[2]
    failed = _FAILED.match(line)
    if failed:
        line = f"model {failed['model']}: {failed['reason']}"
    line = line.removeprefix("ERROR: Failed to create instance: ").removeprefix("error: ")
    model, separator, rest = line.partition(": ") if failed else ("", "", line)
    line = f"{model}{separator}{_WRAPPING.sub('', rest)}"
    reason, _, places = line.partition("\n\nAt:\n")
    place = places.strip().splitlines()[0].strip() if places.strip() else ""
    return " ".join(reason.split()) + (f" [{place}]" if place else "")


def _says(longer: str, shorter: str) -> bool:
    return shorter in longer
