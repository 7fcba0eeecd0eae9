"""How long a server takes to start and what it needs of its nodes, from the sizes of engines and placement.

None of these figures was measured on a GPU host: they are meant to be on the safe side, and each is one constant.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from trt_spec.deploy.load_time import load_time_s
from trt_spec.deploy.targets.target import GpuTarget
from trt_spec.plan.container_limits import shared_memory_bytes
from trt_spec.plan.hardware import GIB
from trt_spec.plan.placement import Placement

PROCESS_BYTES = 6 * GIB  # host memory of one rank besides the engine: CUDA context, libraries, pinned buffers
CPUS_PER_PROCESS = 2  # one launches kernels, one serves; a rank that waits for its CPU stops all others
MIN_CPUS = 4


@dataclass(frozen=True)
class NodeSize:
    """What the server needs of one node. ``memory_bytes`` is the expected peak, shared memory included.

    ``slots[n]`` counts what mpirun starts on node n, without the ranks that an orchestrator spawns.
    """

    load_s: int
    cpus: int
    memory_bytes: int
    shared_memory_bytes: int
    slots: tuple[int, ...]


def size_node(target: GpuTarget) -> NodeSize:
    """The needs of the busiest node, since all of a group are asked for alike. Pure.

    All nodes may read from one volume, so the load time counts the bytes of all of them.
    """
    placement = target.placement
    nodes = range(placement.node_count)
    processes = max(placement.process_count(node) for node in nodes)
    shared_bytes = shared_memory_bytes(processes)
    return NodeSize(
        load_s=math.ceil(load_time_s(target.engine_bytes)),
        cpus=max(MIN_CPUS, CPUS_PER_PROCESS * processes),
        memory_bytes=math.ceil(target.engine_bytes * _largest_share(placement))
        + processes * PROCESS_BYTES
        + shared_bytes,
        shared_memory_bytes=shared_bytes,
        slots=tuple(target.launch.nodes.count(node) for node in nodes),
    )


def ceil_gib(size_bytes: int) -> int:
    """Whole GiB, rounded up."""
    return math.ceil(size_bytes / GIB)


def _largest_share(placement: Placement) -> float:
    """The largest part of any engine's ranks on one node: no node reads more than this part of all engines."""
    return max(
        placed.nodes.count(node) / len(placed.nodes)
        for placed in placement.roles.values()
        for node in range(placement.node_count)
    )
