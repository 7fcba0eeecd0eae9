"""A server's own metrics (Prometheus text format), read before and after a run."""

from __future__ import annotations

import re
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass

from trt_spec.verify.results import MetricsDelta

SCRAPE_TIMEOUT_S = 5.0
_SAMPLE = re.compile(r"^([a-zA-Z_:][a-zA-Z0-9_:]*)(\{.*\})? +(\S+)(?: +-?\d+)?$")
_TYPE = re.compile(r"^# TYPE (\S+) (\S+)$")
_PARTS = ("_total", "_count", "_sum", "_bucket")  # what the samples of one family are called


@dataclass(frozen=True)
class Scrape:
    """Values by metric with labels, and the type of each family. ``missing`` says why there is nothing."""

    values: Mapping[str, float]
    types: Mapping[str, str]
    missing: str = ""


def scrape_metrics(url: str) -> Scrape:
    """Reads http://HOST:PORT/metrics; a server without one is no error."""
    # The proxy of the environment is not meant for a server one has the address of.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(url, timeout=SCRAPE_TIMEOUT_S) as response:
            return parse_metrics(response.read().decode("utf-8", errors="replace"))
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", None) or error
        return Scrape({}, {}, missing=f"{url} cannot be read ({reason})")


def parse_metrics(text: str) -> Scrape:
    """Samples of a page; lines that are none are skipped."""
    values: dict[str, float] = {}
    types: dict[str, str] = {}
    for line in text.splitlines():
        if declared := _TYPE.match(line):
            types[declared[1]] = declared[2]
        elif sample := _SAMPLE.match(line):
            try:
                values[sample[1] + (sample[2] or "")] = float(sample[3])
            except ValueError:
                continue
    return Scrape(values, types)


def subtract(before: Scrape, after: Scrape) -> MetricsDelta:
    """What rose between the two; counters that fell (the server restarted) are taken from 0. Gauges as they are now."""
    missing = before.missing or after.missing
    if missing:
        return MetricsDelta(missing=missing)
    counters: dict[str, float] = {}
    gauges: dict[str, float] = {}
    for name, value in after.values.items():
        if _type_of(name, after.types) == "gauge":
            gauges[name] = value
            continue
        rise = value - before.values.get(name, 0.0)
        if rise:
            counters[name] = rise if rise > 0 else value
    return MetricsDelta(counters, gauges)


def _type_of(name: str, types: Mapping[str, str]) -> str:
    family = name.partition("{")[0]
    candidates = (family, *(family.removesuffix(part) for part in _PARTS))
    return next((types[candidate] for candidate in candidates if candidate in types), "untyped")
