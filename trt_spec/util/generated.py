"""Files of a checkout that code renders: compared with what they should be, or written anew."""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class GeneratedFolder:
    """A folder of generated files. ``by_hand`` names those at its top that are not; None: all that is not rendered."""

    path: Path
    by_hand: Collection[str] | None = None

    def load(self) -> dict[str, bytes]:
        """The generated files by their path below the folder, without what Python compiles on its own."""
        files = {
            file.relative_to(self.path).as_posix(): file for file in sorted(self.path.rglob("*")) if file.is_file()
        }
        return {
            name: file.read_bytes()
            for name, file in files.items()
            if name not in (self.by_hand or ()) and "__pycache__" not in file.parts
        }

    def list_stale(self, rendered: Mapping[str, bytes]) -> list[str]:
        """Names of files that are not as rendered, are missing or should not be there."""
        found = self.load()
        names = rendered.keys() if self.by_hand is None else found.keys() | rendered.keys()
        return sorted(name for name in names if found.get(name) != rendered.get(name))

    def write(self, rendered: Mapping[str, bytes]) -> None:
        """Make the folder what was rendered; else everything in it goes but for what is written by hand."""
        self.path.mkdir(parents=True, exist_ok=True)
        if self.by_hand is not None:
            for entry in self.path.iterdir():
                if entry.is_dir():
                    shutil.rmtree(entry)
                elif entry.name not in self.by_hand:
                    entry.unlink()
        for name, content in rendered.items():
            (self.path / name).parent.mkdir(parents=True, exist_ok=True)
            (self.path / name).write_bytes(content)


def run_generator(module: str, folder: GeneratedFolder, rendered: Mapping[str, bytes]) -> None:
    """What ``python -m MODULE`` does: say which files are stale and exit with 1, or renew all with --write."""
    parser = argparse.ArgumentParser(
        prog=f"python -m {module}", description=f"Compare {folder.path.name}/ or renew it."
    )
    parser.add_argument("--write", action="store_true", help="write the files instead of comparing them")
    if parser.parse_args().write:
        folder.write(rendered)
    elif stale := folder.list_stale(rendered):
        sys.exit(f"{folder.path.name}/ differs, renew it with --write: {', '.join(stale)}")
