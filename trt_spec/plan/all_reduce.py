"""How tensor-parallel ranks add up their results, and what links between GPUs mean for it.

Versions before 0.12 had ``--use_custom_all_reduce``. The supported ones have no such flag: the runtime takes its own
kernels where all ranks reach each other over NVLink, and NCCL elsewhere (allreducePlugin.cpp, selectImplementation).
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping

from trt_spec.plan.finding import Finding
from trt_spec.plan.placement import Placement
from trt_spec.plan.toolchain import Profile
from trt_spec.spec.model import Role, Spec

FLAG = "--use_custom_all_reduce"
FLAG_REMOVED_IN = "0.12"

Links = Mapping[tuple[int, int], str]
"""Link of each pair of GPUs, lower index first, as nvidia-smi spells it: NV18, PIX, PHB, NODE, SYS."""

_GPU = re.compile(r"GPU\d+")
_ESCAPES = re.compile(r"\x1b\[[0-9;]*m")  # nvidia-smi underlines its header


def parse_topology(text: str) -> dict[tuple[int, int], str]:
    """The links in the output of ``nvidia-smi topo -m``; network cards are passed over."""
    rows = [line.split() for line in _ESCAPES.sub("", text).splitlines() if line.strip()]
    header, *body = rows or [[]]
    columns = [int(name[3:]) for name in header if _GPU.fullmatch(name)]
    links: dict[tuple[int, int], str] = {}
    for row in body:
        if _GPU.fullmatch(row[0]):
            first = int(row[0][3:])
            links.update({(first, other): link for other, link in zip(columns, row[1:], strict=False) if first < other})
    return links


def check_all_reduce(
    spec: Spec, placement: Placement, profile: Profile, links: Links | None = None
) -> tuple[Finding, ...]:
    """What there is to know of the all-reduce of each engine; ``links`` are those of the machine, where known."""
    found: list[Finding] = []
    for role, placed in placement.roles.items():
        if len(placed.gpus) == 1 or spec.models()[role].tensor_parallel == 1:
            continue
        if profile.find_flag(FLAG) is None:
            found.append(_no_flag(spec, role, profile))
        found += _check_links(role, placed.device_ids, links or {})
    return tuple(found)


def _no_flag(spec: Spec, role: Role, profile: Profile) -> Finding:
    return Finding(
        "all-reduce-automatic",
        "note",
        f"{role}: TensorRT-LLM {profile.version} has no {FLAG} (removed in {FLAG_REMOVED_IN}); it uses its own kernels "
        "over NVLink and falls back to NCCL without peer access.",
        f"Load it at its limits once: {spec.limits.max_batch_size} requests at a time, prompts of "
        f"{spec.limits.max_input_len - 1} tokens.",
        role,
    )


def _check_links(role: Role, device_ids: tuple[int, ...], links: Links) -> Iterator[Finding]:
    for first, second in itertools.combinations(sorted(set(device_ids)), 2):
        link = links.get((first, second))
        if link is not None and not link.startswith("NV"):
            yield Finding(
                "all-reduce-without-nvlink",
                "warn",
                f"{role}: GPUs {first} and {second} are linked by {link}, not NVLink, so that the all-reduces go over "
                "NCCL and the host.",
                f"Use GPUs linked by NVLink, or split {role} over fewer of them.",
                role,
            )
            return
