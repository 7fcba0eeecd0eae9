"""How long a pod takes to start and what it needs of its node, from the sizes of engines and placement.

None of these figures was measured on a GPU host: they are meant to be on the safe side, and each is one constant.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from trt_spec.deploy.container import MIN_SHARED_MEMORY_BYTES, SHARED_MEMORY_PER_RANK_BYTES
from trt_spec.deploy.targets.target import GpuTarget
from trt_spec.plan.hardware import GIB
from trt_spec.plan.placement import Placement, plan_placement

READ_BYTES_PER_S = 200e6  # a slow network volume; a local NVMe disk gives ten times as much
START_MARGIN_S = 300  # CUDA and NCCL start, memory is allocated, Python models load
PROCESS_BYTES = 6 * GIB  # host memory of one rank besides the engine: CUDA context, libraries, pinned buffers
CPUS_PER_PROCESS = 2  # one launches kernels, one serves; a rank that waits for its CPU stops all others
MIN_CPUS = 4


@dataclass(frozen=True)
class PodSize:
    """What one pod needs. ``memory_bytes`` is the expected peak, shared memory included; ``slots`` are its MPI ranks.

    ``slots[n]`` counts what mpirun starts on node n, without the ranks that an orchestrator spawns.
    """

    load_s: int
    cpus: int
    memory_bytes: int
    shared_memory_bytes: int
    slots: tuple[int, ...]


def size_pod(target: GpuTarget) -> PodSize:
    """The needs of the busiest node, since all pods of a group are alike. Pure.

    All nodes may read from one volume, so the load time counts the bytes of all of them.
    """
    placement, _ = plan_placement(target.spec)
    processes = max(_processes(placement, node) for node in range(target.nodes))
    shared_memory_bytes = max(MIN_SHARED_MEMORY_BYTES, processes * SHARED_MEMORY_PER_RANK_BYTES)
    engine_bytes = math.ceil(target.engine_bytes * _largest_share(placement, target.nodes))
    return PodSize(
        load_s=math.ceil(target.engine_bytes / READ_BYTES_PER_S) + START_MARGIN_S,
        cpus=max(MIN_CPUS, CPUS_PER_PROCESS * processes),
        memory_bytes=engine_bytes + processes * PROCESS_BYTES + shared_memory_bytes,
        shared_memory_bytes=shared_memory_bytes,
        slots=tuple(target.launch.nodes.count(node) for node in range(target.nodes)),
    )


def render_gib(size_bytes: int) -> str:
    """A Kubernetes quantity, rounded up."""
    return f"{math.ceil(size_bytes / GIB)}Gi"


def _processes(placement: Placement, node: int) -> int:
    ranks = sum(placed.nodes.count(node) for placed in placement.roles.values())
    return ranks + (placement.mode != "leader" and node == 0)


def _largest_share(placement: Placement, nodes: int) -> float:
    """The largest part of any engine's ranks on one node: no node reads more than this part of all engines."""
    return max(
        placed.nodes.count(node) / len(placed.nodes) for placed in placement.roles.values() for node in range(nodes)
    )
