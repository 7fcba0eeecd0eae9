"""Presets: ready specs to start from, the YAML files of the root folder ``build/``.

The wheel carries them as ``preset_files`` beside this module; a checkout uses the root folder itself.
"""

from __future__ import annotations

import difflib
import importlib.resources
import os
import re
from pathlib import Path
from typing import NamedTuple

from trt_spec.errors import SpecError
from trt_spec.spec.model import NAME_PATTERN, PATTERN_WORDS
from trt_spec.spec.schema import SCHEMA_PATH
from trt_spec.spec.yaml_lines import compose_document
from trt_spec.util.files import write_text_atomic

DEFAULT_PRESET = "smollm2-cpu"

_SUFFIX = ".yaml"
_SCHEMA_COMMENT = "# yaml-language-server: $schema="
_NAME_LINE = re.compile(r"^name:[ \t]*[^\s#]+", re.MULTILINE)


class Preset(NamedTuple):
    """A ready spec: its name, one line about it, and its commented YAML text."""

    name: str
    summary: str
    text: str


def load_presets() -> tuple[Preset, ...]:
    """All presets by name."""
    installed = importlib.resources.files("trt_spec.spec") / "preset_files"
    folder = installed if installed.is_dir() else Path(__file__).parents[2] / "build"
    texts = {file.name: file.read_text(encoding="utf-8") for file in folder.iterdir() if file.name.endswith(_SUFFIX)}
    return tuple(Preset(name.removesuffix(_SUFFIX), _summary_of(text), text) for name, text in sorted(texts.items()))


def load_preset(name: str) -> Preset:
    """The preset ``name``. Raises SpecError, which lists them, if there is none."""
    presets = {preset.name: preset for preset in load_presets()}
    if name in presets:
        return presets[name]
    close = difflib.get_close_matches(name, presets, n=1)
    meant = f' Did you mean "{close[0]}"?' if close else ""
    raise SpecError(
        f'There is no preset "{name}", expected one of {", ".join(presets)}.{meant}',
        remedy="`trtspec init --list` describes them.",
    )


def render_preset(preset: Preset, name: str, folder: Path) -> str:
    """The text of ``preset`` under the spec name ``name``, comments kept, for a file in ``folder``.

    Its first line points editors to the schema where a short relative path leads there, and is left out elsewhere.
    Raises SpecError if ``name`` is not a name for a spec.
    """
    if not re.fullmatch(NAME_PATTERN, name):
        raise SpecError(f"The name {name!r} is not one for a spec.", remedy=f"Use {PATTERN_WORDS[NAME_PATTERN]}.")
    # Some names are something else to YAML: 2024, 1.5, true.
    written = name if compose_document(name).data == name else f'"{name}"'
    text = _NAME_LINE.sub(f"name: {written}", preset.text, count=1)
    if text.startswith(_SCHEMA_COMMENT):
        text = text.partition("\n")[2]
    schema = os.path.relpath(SCHEMA_PATH, folder)
    return text if schema.startswith(os.path.join("..", "..")) else f"{_SCHEMA_COMMENT}{schema}\n{text}"  # noqa: PTH118


def write_preset(preset: Preset, name: str, path: Path, *, force: bool = False) -> None:
    """Write ``preset`` as the spec ``name`` to the file ``path``; an existing one is replaced only with ``force``.

    Raises SpecError, with nothing written, if the name or the path does not do.
    """
    text = render_preset(preset, name, path.parent)
    if path.is_dir():
        raise SpecError(f"{path} is a folder, expected the path of a file.", remedy=f"Try {path / name}{_SUFFIX}.")
    if os.path.lexists(path) and not force:
        raise SpecError(f"{path} exists already.", remedy="Choose another name or path, or replace it with --force.")
    if not path.parent.is_dir():
        raise SpecError(
            f"There is no folder {path.parent} to write to.", remedy="Make it first, or choose another path."
        )
    try:
        write_text_atomic(path, text)
    except OSError as error:
        raise SpecError(
            f"{path} cannot be written: {error.strerror}.", remedy="Choose a path you may write to."
        ) from None


def _summary_of(text: str) -> str:
    """The first comment that speaks to people."""
    comments = (line for line in text.splitlines() if line.startswith("# ") and not line.startswith(_SCHEMA_COMMENT))
    return next(comments).removeprefix("# ")
