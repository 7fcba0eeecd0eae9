"""Profiles: one TensorRT-LLM release with its container, its trtllm-build flags and the formats it reads.

The data beside this module is recorded, not written by hand (tests/fixtures/make_toolchain.py makes it): the table of
profiles and, for each version, the flags of trtllm-build and the fields of an engine's build and plugin configuration.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from trt_spec.errors import SpecError
from trt_spec.spec.rules import ENGINE_REMOVED_IN

CheckpointDialect = Literal["0.17", "1.3.0rc3"]
FlagType = Literal["str", "int", "switch", "KVCacheType"]

DATA_DIR = Path(__file__).parent
PROFILES_FILE = DATA_DIR / "profiles.json"

KV_CACHE_TYPES = ("continuous", "paged", "disabled")
"""What trtllm-build's own help lists for the flag type KVCacheType, which is no list of choices in the record."""

_LAST_CANDIDATE = 10**6  # a release comes after all its candidates
_DEVELOPMENT = -1


@dataclass(frozen=True)
class Flag:
    """A flag of trtllm-build. ``default`` is None where argparse has none; ``nargs`` "+" takes one or more values."""

    names: tuple[str, ...]
    dest: str
    type: FlagType
    choices: tuple[str, ...] | None
    nargs: str | None
    default: str | int | bool | None


@dataclass(frozen=True)
class ConfigField:
    """A field of an engine's config.json; ``type`` is spelled as NVIDIA's source annotates it."""

    type: str
    default: Any


@dataclass(frozen=True)
class Profile:
    """One TensorRT-LLM release.

    ``min_driver`` is the oldest NVIDIA driver (major version) that CUDA's minor-version compatibility allows,
    ``driver`` the one its container was made for. ``dialect`` is the checkpoint format, ``template_dialect`` that of
    the Triton templates, ``templates_location`` the repository that holds these. ``converter_path`` counts from the
    root of TensorRT-LLM's repository, ``quantizer_path`` is a path inside the container. ``trust`` says of each group
    of facts how sure it is; ``flags_recorded`` is the tree that the flags were read in.
    ``not_recorded`` lists what a version between two profiles borrows from one of them; empty for the profiles.
    """

    version: str
    container: str
    triton: str
    tensorrt: str
    cuda: str
    driver: str
    min_driver: str | None
    dialect: CheckpointDialect
    template_dialect: str
    templates_location: str
    converter_path: str
    quantizer_path: str
    tokens_per_block: int
    trust: Mapping[str, str]
    flags: Mapping[str, Flag]
    flags_recorded: str
    flags_trust: str
    flags_status: str
    flags_provenance: str
    build_config_fields: Mapping[str, ConfigField]
    plugin_config_fields: Mapping[str, ConfigField]
    not_recorded: tuple[str, ...] = ()

    def find_flag(self, name: str) -> Flag | None:
        """The flag called ``name`` (``--max_seq_len``, or an alias of it), None if this version has no such flag."""
        return next((flag for flag in self.flags.values() if name in flag.names), None)


@functools.cache
def load_profile(version: str) -> Profile:
    """The profile of exactly this TensorRT-LLM version.

    Raises SpecError for any other: it says whether the version is too old, not recorded, or has no engines any more.
    """
    profiles = _load_json(PROFILES_FILE)
    if version not in profiles:
        raise _unsupported(version, tuple(profiles))
    row, record = profiles[version], _load_json(DATA_DIR / f"{version}.json")
    return Profile(
        version=version,
        **row,
        flags={dest: _parse_flag(dest, flag) for dest, flag in record["flags"].items()},
        flags_recorded=record["recorded"],
        flags_trust=record["trust"],
        flags_status=record["status"],
        flags_provenance=record["provenance"],
        build_config_fields={name: ConfigField(**field) for name, field in record["build_config_fields"].items()},
        plugin_config_fields={name: ConfigField(**field) for name, field in record["plugin_config_fields"].items()},
    )


def _load_json(path: Path) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return document


def _parse_flag(dest: str, row: Mapping[str, Any]) -> Flag:
    choices = row["choices"]
    return Flag(
        names=tuple(row["names"]),
        dest=dest,
        type=row["type"],
        choices=None if choices is None else tuple(choices),
        nargs=row["nargs"],
        default=row["default"],
    )


def _unsupported(version: str, supported: tuple[str, ...]) -> SpecError:
    listed = f"{', '.join(supported[:-1])} or {supported[-1]}"
    try:
        key = version_key(version)
    except ValueError:
        return SpecError(f"{version!r} is no version of TensorRT-LLM.", remedy=f"Set tensorrt_llm to {listed}.")
    if key >= version_key(ENGINE_REMOVED_IN):
        return SpecError(
            f"TensorRT-LLM {version} builds no engines: their backend was removed in {ENGINE_REMOVED_IN}.",
            remedy=f"Use `backend: llmapi` with it, or set tensorrt_llm to {listed}.",
        )
    if key < version_key(supported[0]):
        return SpecError(
            f"TensorRT-LLM {version} is too old: draft-target with KV cache reuse is supported from {supported[0]} on.",
            remedy=f"Set tensorrt_llm to one of the three profiles: {listed}.",
        )
    return SpecError(
        f"TensorRT-LLM {version} is not recorded: its flags and formats may differ from those of its neighbours.",
        remedy=f"Set tensorrt_llm to one of the three profiles: {listed}. Releases between them can be built with "
        "--accept-derived, which names what is borrowed from a neighbour.",
    )


def version_key(version: str) -> tuple[int, int, int, int]:
    """Orders releases, their candidates (1.3.0rc3) and what precedes both (0.17.0.dev2024121700, 1.0.0a1)."""
    match = re.fullmatch(r"(\d+)\.(\d+)(?:\.(\d+))?(?:\.\d+)*(?:rc(\d+)|(\.?(?:dev|a|b)\d+)|\.post\d+)*", version)
    if match is None:
        raise ValueError(version)
    stage = _DEVELOPMENT if match[5] else int(match[4] or _LAST_CANDIDATE)
    return int(match[1]), int(match[2]), int(match[3] or 0), stage
