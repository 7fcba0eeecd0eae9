"""The hidden folder beside the output in which a conversion is made, and from which a killed one goes on.

A rank counts as finished once its mark is there: a small file, written after the rank's bytes reached the disk. The
folder gets the output's name when everything is in it, so the output never holds half a checkpoint.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from trt_spec.build.store import is_finished
from trt_spec.errors import EnvironmentMissing, SpecError, StepFailed
from trt_spec.util.files import write_text_atomic

MARKS = ".finished"
PLAN_NAME = "fingerprint"


@dataclass(frozen=True)
class FinishedRank:
    """What is known of a rank file whose bytes are on the disk."""

    sha256: str
    bytes: int
    warnings: tuple[str, ...]


@dataclass(frozen=True)
class Workplace:
    """An open work folder; ``root`` is hidden beside the output."""

    root: Path
    output: Path

    def mark(self, name: str, rank: FinishedRank) -> None:
        """Record a rank as finished."""
        write_text_atomic(self.root / MARKS / name, json.dumps(asdict(rank)))

    def load_finished(self) -> dict[str, FinishedRank]:
        """The ranks that an earlier run finished, by file name; a file of another size is not taken for one."""
        found = {}
        for path in (self.root / MARKS).glob("rank*"):
            try:
                stored = json.loads(path.read_text(encoding="utf-8"))
                rank = FinishedRank(stored["sha256"], stored["bytes"], tuple(stored["warnings"]))
                if (self.root / path.name).stat().st_size == rank.bytes:
                    found[path.name] = rank
            except (OSError, ValueError, KeyError, TypeError):
                continue
        return found

    def remove_unfinished(self) -> None:
        """Remove rank files without a mark, and whatever a killed run left half written."""
        keep = {*self.load_finished(), MARKS}
        for path in self.root.iterdir():
            if path.name not in keep:
                path.unlink()
        for path in (self.root / MARKS).glob(".*"):
            path.unlink()

    def publish(self) -> None:
        """Flush the folder and give it the output's name."""
        for path in (*self.root.iterdir(), self.root):
            _flush(path)
        shutil.rmtree(self.root / MARKS, ignore_errors=True)  # gone already if an earlier run was killed right here
        self.root.rename(self.output)  # replaces an empty folder, nothing else
        _flush(self.output.parent)


@contextlib.contextmanager
def open_workplace(output: Path, fingerprint: str) -> Iterator[Workplace]:
    """The work folder for ``output``, locked; what another plan left in it is removed first.

    It survives OSError, an interrupt and being killed, for the next run, with the finished ranks; a fault of the source
    removes it. Raises SpecError for an output that is taken, StepFailed while another process works on it.
    """
    output = output.absolute()
    check_output(output)
    output.parent.mkdir(parents=True, exist_ok=True)
    root = output.with_name(f".{output.name}.convert")
    root.mkdir(exist_ok=True)
    lock = os.open(root, os.O_RDONLY)
    try:
        _lock(lock, output)
        workplace = Workplace(root, output)
        _prepare(workplace, fingerprint)
        try:
            yield workplace
        except (OSError, KeyboardInterrupt, StepFailed):
            with contextlib.suppress(OSError):
                workplace.remove_unfinished()
            raise
        except BaseException as error:
            # Too little space for the rest is no reason to lose what an earlier run finished.
            if not isinstance(error, EnvironmentMissing) or not workplace.load_finished():
                shutil.rmtree(root, ignore_errors=True)
            raise
    finally:
        os.close(lock)


def check_output(output: Path) -> None:
    """Raise SpecError unless a checkpoint can get this name: nothing is there, or an empty folder."""
    if output.is_symlink() or (output.exists() and not output.is_dir()):
        raise SpecError(f"The output {output} is a file or a link, expected a folder.", remedy="Name another folder.")
    if output.is_dir():
        if any(output.iterdir()):
            raise SpecError(
                f"The output folder {output} is not empty.", remedy="Name another folder, or remove this one first."
            )
        if os.path.ismount(output):
            raise SpecError(
                f"The output folder {output} is a mount point, which cannot be replaced.",
                remedy=f"Name a folder in it, such as {output / 'checkpoint'}.",
            )


def _lock(descriptor: int, output: Path) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise StepFailed(
            f"Another trtspec convert is writing {output}.", remedy="Wait for it, or name another folder."
        ) from None
    except OSError as error:
        # File systems without locks are used without one.
        if error.errno not in (errno.ENOLCK, errno.ENOTSUP, errno.EINVAL):
            raise


def _prepare(workplace: Workplace, fingerprint: str) -> None:
    if is_finished(workplace.root, fingerprint):
        return  # killed just before it got its name
    plan = workplace.root / MARKS / PLAN_NAME
    if not plan.is_file() or plan.read_text(encoding="utf-8") != fingerprint:
        for path in workplace.root.iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        plan.parent.mkdir()
        write_text_atomic(plan, fingerprint)
    workplace.remove_unfinished()


def _flush(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
