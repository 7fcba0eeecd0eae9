"""Which requirements of trtspec's extras are not met in this Python environment, by the packages' own metadata."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib import metadata

DISTRIBUTION = "trtspec"
EXTRAS = ("local", "client", "hub", "plot", "engine")

_REQUIREMENT = re.compile(r"\s*([A-Za-z0-9][A-Za-z0-9._-]*)\s*(?:\[([^\]]*)\])?\s*\(?([^;)]*)\)?\s*(?:;(.*))?")
_EXTRA = re.compile(r"\s*extra\s*==\s*['\"]([^'\"]+)['\"]\s*")
_BOUND = re.compile(r"(==|>=|<=|>|<)\s*(\d+(?:\.\d+)*)\s*$")


def find_missing(distribution: str = DISTRIBUTION) -> dict[str, tuple[str, ...]] | None:
    """The unmet requirements of each extra, as the package states them; None where it is not installed as a package."""
    try:
        metadata.distribution(distribution)
    except metadata.PackageNotFoundError:
        return None
    return {extra: tuple(_unmet(distribution, extra, frozenset())) for extra in EXTRAS}


def find_version(distribution: str) -> str | None:
    """The installed version of a package, None without it."""
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def _unmet(distribution: str, extra: str, seen: frozenset[tuple[str, str]]) -> Iterator[str]:
    """Conditions other than the extra (of platform or Python) are pip's to judge; such lines are passed over."""
    for line in metadata.requires(distribution) or ():
        parts = _REQUIREMENT.fullmatch(line)
        marker = _EXTRA.fullmatch(parts[4] or "") if parts else None
        if parts is None or marker is None or marker[1] != extra:
            continue
        name, nested, bounds = parts[1], parts[2] or "", parts[3].strip()
        version = find_version(name)
        if version is None or not is_within(version, bounds):
            yield f"{name}{bounds}" + (f" (found {version})" if version else "")
            continue
        for inner in (each.strip() for each in nested.split(",") if each.strip()):
            if (name, inner) not in seen:
                yield from _unmet(name, inner, seen | {(name, inner)})


def is_within(version: str, bounds: str) -> bool:
    """Whether a release keeps all bounds like ">=0.17,<=1.2.1"; a bound in another form is taken as kept."""
    found = re.match(r"\d+(?:\.\d+)*", version)
    if found is None:
        return True
    return all(_keeps(_key(found[0]), bound) for text in bounds.split(",") if (bound := _BOUND.match(text.strip())))


def _keeps(version: tuple[int, ...], bound: re.Match[str]) -> bool:
    limit = _key(bound[2])
    return {
        "==": version == limit,
        ">=": version >= limit,
        "<=": version <= limit,
        ">": version > limit,
        "<": version < limit,
    }[bound[1]]


def _key(text: str) -> tuple[int, ...]:
    """Trailing zeros do not count: 1.0 is 1.0.0."""
    numbers = [int(part) for part in text.split(".")]
    while numbers and numbers[-1] == 0:
        numbers.pop()
    return tuple(numbers)
