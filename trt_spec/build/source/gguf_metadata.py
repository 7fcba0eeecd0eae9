"""The key-value part of a GGUF file, with types checked when a key is read."""

from __future__ import annotations

import importlib
from functools import cached_property
from pathlib import Path
from typing import Any

from trt_spec.errors import EnvironmentMissing, SpecError

_REMEDY = "Download the file again."


class Metadata:
    """Typed access to a GGUF's keys; every accessor raises SpecError naming file and key if the value does not fit."""

    def __init__(self, path: Path, reader: Any) -> None:
        self.path = path
        self._reader = reader
        self._lists: dict[str, list[Any]] = {}

    @cached_property
    def keys(self) -> frozenset[str]:
        return frozenset(self._reader.fields)

    def string(self, key: str) -> str:
        return str(self._scalar(key, str))

    def integer(self, key: str) -> int:
        return int(self._scalar(key, int))

    def number(self, key: str) -> float:
        """Return a float32 as the shortest decimal that names it: 1e-05, not 9.999999747378752e-06."""
        import numpy as np

        return float(str(np.float32(self._scalar(key, float))))

    def optional_string(self, key: str) -> str | None:
        return self.string(key) if key in self.keys else None

    def optional_integer(self, key: str) -> int | None:
        return self.integer(key) if key in self.keys else None

    def flag(self, key: str) -> bool:
        """Return a boolean, False when the key is absent."""
        return bool(self._scalar(key, bool)) if key in self.keys else False

    def strings(self, key: str) -> list[str]:
        return self._list(key, str)

    def integers(self, key: str) -> list[int]:
        return self._list(key, int)

    def _contents(self, key: str) -> Any:
        if key not in self.keys:
            raise SpecError(f"{self.path} has no {key}.", remedy=_REMEDY)
        try:
            return self._reader.fields[key].contents()
        except UnicodeDecodeError as error:
            raise SpecError(f"{self.path}: {key} is not UTF-8.", remedy=_REMEDY) from error

    def _scalar(self, key: str, kind: type) -> Any:
        value = self._contents(key)
        if type(value) is not kind:
            raise SpecError(f"{self.path}: {key} is a {type(value).__name__}, expected a {kind.__name__}.")
        return value

    def _list(self, key: str, kind: type) -> list[Any]:
        if key not in self._lists:
            values = self._contents(key)
            if not isinstance(values, list) or not all(type(value) is kind for value in values):
                raise SpecError(f"{self.path}: {key} is not a list of {kind.__name__}.")
            self._lists[key] = values
        return self._lists[key]


def open_gguf(path: Path) -> Any:
    """Return a gguf.GGUFReader over a memory-mapped file. Raises SpecError when the file is missing, cut or no GGUF."""
    gguf = import_extra("gguf")
    try:
        return gguf.GGUFReader(path)
    except OSError as error:
        raise SpecError(f"Cannot read {path}: {error.strerror or error}.") from error
    except (ValueError, IndexError, KeyError, OverflowError, TypeError) as error:
        raise SpecError(f"{path} is not a whole GGUF file ({error}).", remedy=_REMEDY) from error


def import_extra(name: str) -> Any:
    """Import a package of the `local` extra. Raises EnvironmentMissing naming the extra."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise EnvironmentMissing(
            f"The Python package {name!r} is not installed.", remedy="Run: pip install 'trtspec[local]'."
        ) from error
