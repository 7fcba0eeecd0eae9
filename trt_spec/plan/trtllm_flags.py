"""Command lines of trtllm-build checked against the recorded flags of a version, stricter than trtllm-build's parser.

Abbreviated and repeated flags, which argparse takes in silence, are faults here.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from trt_spec.errors import SpecError
from trt_spec.plan.toolchain import Flag, Profile
from trt_spec.plan.toolchain.profile import KV_CACHE_TYPES


class FlagFault(NamedTuple):
    """One thing wrong with a command line. ``kind`` is "unknown", "value" or "repeated"."""

    kind: str
    flag: str
    message: str
    remedy: str


def check_flags(argv: Sequence[str], profile: Profile) -> None:
    """Raise SpecError, naming every fault, unless ``argv`` (program name first) is sound for the profile's version."""
    faults = judge_flags(argv, profile)
    if faults:
        raise SpecError(
            " ".join(fault.message for fault in faults),
            remedy=" ".join(dict.fromkeys(fault.remedy for fault in faults if fault.remedy)),
        )


def judge_flags(argv: Sequence[str], profile: Profile) -> tuple[FlagFault, ...]:
    """Every fault of a trtllm-build command line whose first word is the program's name, in its order."""
    faults: list[FlagFault] = []
    seen: set[str] = set()
    for name, values in _split(argv[1:]):
        flag = profile.find_flag(name)
        if flag is None:
            faults.append(_unknown(name, profile))
            continue
        if flag.dest in seen:
            faults.append(FlagFault("repeated", name, f"{name} is given twice.", "Give it once."))
        seen.add(flag.dest)
        message = judge_values(flag, values)
        if message:
            faults.append(FlagFault("value", name, f"{name} of TensorRT-LLM {profile.version} {message}.", ""))
    return tuple(faults)


def judge_values(flag: Flag, values: Sequence[str]) -> str | None:
    """What is wrong with the values of a flag ("expects one value, found 2"), None if they are sound."""
    if flag.type == "switch":
        return f"takes no value, found {values[0]!r}" if values else None
    if not values:
        return "expects a value, found none"
    if flag.nargs is None and len(values) > 1:
        return f"expects one value, found {len(values)}"
    return next((message for value in values if (message := _judge_value(flag, value))), None)


def _judge_value(flag: Flag, value: str) -> str | None:
    if flag.type == "int":
        try:
            int(value)
        except ValueError:
            return f"expects a whole number, found {value!r}"
    choices = KV_CACHE_TYPES if flag.type == "KVCacheType" else flag.choices
    if choices is not None and value not in choices:
        return f"expects one of {', '.join(choices)}, found {value!r}"
    return None


def _split(words: Sequence[str]) -> Iterator[tuple[str, list[str]]]:
    """Flags with their values; a value before the first flag comes with the flag name that it stands in for."""
    name, values = "", list[str]()
    for word in words:
        if word.startswith("--"):
            if name:
                yield name, values
            name, equals, value = word.partition("=")
            values = [value] if equals else []
        elif name:
            values.append(word)
        else:
            yield word, []
    if name:
        yield name, values


def _unknown(name: str, profile: Profile) -> FlagFault:
    known = [known_name for flag in profile.flags.values() for known_name in flag.names]
    close = difflib.get_close_matches(name, known, n=1)
    return FlagFault(
        "unknown",
        name,
        f"trtllm-build of TensorRT-LLM {profile.version} has no flag {name}.",
        f"Did you mean {close[0]}?" if close else "",
    )
