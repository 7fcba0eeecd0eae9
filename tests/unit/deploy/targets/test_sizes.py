"""What a server needs of its nodes, against sums done by hand."""

from __future__ import annotations

from trt_spec.deploy.targets.k8s_pod import render_gib
from trt_spec.deploy.targets.sizes import size_node
from trt_spec.plan.hardware import GIB

from .conftest import ALONE, TWO_NODES, MakeTarget


def test_one_node_counts_both_engines_and_the_orchestrator(make_target: MakeTarget) -> None:
    size = size_node(make_target(engine_bytes=400 * 10**9))
    processes = 1 + 4 + 1  # orchestrator, target ranks, draft rank
    assert size.load_s == 2000 + 300
    assert size.cpus == 2 * processes
    assert size.shared_memory_bytes == processes * GIB
    assert size.memory_bytes == 400 * 10**9 + processes * 7 * GIB
    assert size.slots == (1,)  # mpirun starts the orchestrator alone, which spawns the others


def test_two_nodes_share_the_engines_and_count_all_ranks_as_slots(make_target: MakeTarget) -> None:
    size = size_node(make_target(engine_bytes=400 * 10**9, **TWO_NODES))
    assert size.slots == (1 + 1 + 4, 4)  # the draft lies on the first node whole, and so may as much of the bytes
    assert size.memory_bytes == 400 * 10**9 + 6 * 7 * GIB
    assert size.load_s == 2300  # both nodes read from one volume


def test_an_engine_split_evenly_is_counted_by_its_half(make_target: MakeTarget) -> None:
    size = size_node(make_target(engine_bytes=400 * 10**9, **TWO_NODES, **ALONE))
    assert size.slots == (4, 4)
    assert size.memory_bytes == 200 * 10**9 + 4 * 7 * GIB


def test_a_single_rank_still_gets_the_least_sizes(make_target: MakeTarget) -> None:
    size = size_node(make_target(engine_bytes=0, target={"model": "owner/target"}, **ALONE))
    assert (size.load_s, size.cpus, size.shared_memory_bytes) == (300, 4, 2 * GIB)


def test_slurm_is_sized_by_the_ranks_that_it_starts_itself(make_target: MakeTarget) -> None:
    size = size_node(make_target("slurm"))
    assert size.slots == (1 + 4 + 1,)
    assert size.cpus == 2 * 6


def test_quantities_are_rounded_up() -> None:
    assert [render_gib(size) for size in (GIB, GIB + 1, 1)] == ["1Gi", "2Gi", "1Gi"]
