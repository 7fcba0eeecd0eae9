"""Figures of the GPUs that a spec can name.

Memory is what the driver reports, not the datasheet's: the difference is gigabytes, and plans must fit into the former.
Bandwidth and peak rates are the datasheet's for dense matrices; real kernels reach less, which the speed model accounts
for by its own efficiency. ``trust`` says for each GPU where the figures come from.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import get_args

from trt_spec.errors import SpecError
from trt_spec.spec import model

MIB = 1024**2
GIB = 1024**3

FP8_COMPUTE_CAPABILITY = (8, 9)  # Ada and newer multiply FP8; TensorRT-LLM's builder refuses FP8 attention below it


@dataclass(frozen=True)
class Gpu:
    """One GPU. Memory bandwidth in bytes/s, dense peak rates in flop/s (0: not in hardware).

    ``link_bytes_per_s`` is to the other GPUs of the node, both directions together, as NVIDIA prints it.
    ``sm`` is the compute capability.
    """

    name: str
    memory_bytes: int
    bandwidth_bytes_per_s: float
    bf16_flops: float
    fp8_flops: float
    link_bytes_per_s: float
    sm: str
    trust: str

    @property
    def compute_capability(self) -> tuple[int, int]:
        """``sm`` as numbers: "8.9" gives (8, 9)."""
        major, minor = self.sm.split(".")
        return int(major), int(minor)

    @property
    def has_fp8(self) -> bool:
        """Whether its tensor cores multiply FP8."""
        return self.compute_capability >= FP8_COMPUTE_CAPABILITY


_DATASHEET = "NVIDIA datasheet for bandwidth and peak rates; memory as nvidia-smi reports it, from memory, not measured"

GPUS: dict[model.Gpu, Gpu] = {
    "A100": Gpu(
        name="A100",  # SXM4, 80 GB
        memory_bytes=81920 * MIB,
        bandwidth_bytes_per_s=2.039e12,
        bf16_flops=312e12,
        fp8_flops=0.0,
        link_bytes_per_s=600e9,
        sm="8.0",
        trust=_DATASHEET,
    ),
    "L40S": Gpu(
        name="L40S",  # 48 GB with ECC on; no NVLink, so the link is PCIe 4.0 x16
        memory_bytes=46068 * MIB,
        bandwidth_bytes_per_s=864e9,
        bf16_flops=362e12,
        fp8_flops=733e12,
        link_bytes_per_s=64e9,
        sm="8.9",
        trust=_DATASHEET,
    ),
    "H100": Gpu(
        name="H100",  # SXM5, 80 GB
        memory_bytes=81559 * MIB,
        bandwidth_bytes_per_s=3.35e12,
        bf16_flops=990e12,
        fp8_flops=1979e12,
        link_bytes_per_s=900e9,
        sm="9.0",
        trust=_DATASHEET,
    ),
    "H200": Gpu(
        name="H200",  # SXM5, 141 GB by the datasheet
        memory_bytes=143771 * MIB,
        bandwidth_bytes_per_s=4.8e12,
        bf16_flops=990e12,
        fp8_flops=1979e12,
        link_bytes_per_s=900e9,
        sm="9.0",
        trust="memory as the driver reports it; bandwidth and peak rates by NVIDIA's datasheet (about 4.3e12 bytes/s "
        "and 0.8e15 flop/s in BF16 were reached on one)",
    ),
    "B200": Gpu(
        name="B200",  # SXM6, 180 GB usable of 192
        memory_bytes=183359 * MIB,
        bandwidth_bytes_per_s=8.0e12,
        bf16_flops=2250e12,
        fp8_flops=4500e12,
        link_bytes_per_s=1800e9,
        sm="10.0",
        trust=_DATASHEET,
    ),
    "generic": Gpu(
        name="generic",
        memory_bytes=80 * GIB,
        bandwidth_bytes_per_s=2e12,
        bf16_flops=400e12,
        fp8_flops=800e12,
        link_bytes_per_s=64e9,
        sm="8.9",
        trust="round figures of no real product: an 80 GiB GPU with FP8 on PCIe 4.0 x16; do not size a purchase by it",
    ),
}


def load_gpu(name: str) -> Gpu:
    """The figures of a GPU by its name in the spec. Raises SpecError for one without figures."""
    for known, gpu in GPUS.items():
        if known == name:
            return gpu
    raise SpecError(
        f"GPU {name!r} has no figures, expected one of {', '.join(get_args(model.Gpu))}.",
        remedy="Name the one whose memory is nearest below yours, or `generic` (80 GiB, 2e12 bytes/s).",
    )
