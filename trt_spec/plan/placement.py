"""Which GPU runs which rank of which engine, and how the processes start.

Sources: TensorRT-LLM's triton_backend scripts/launch_triton_server.py, draft-target README and llama_multi_instance.md.
One engine runs in leader mode: one process a rank. Two engines need orchestrator mode: Triton spawns the ranks on its
own node (world size 1), or all ranks start together with rank 0 as orchestrator, which fast logits and several nodes
need. Participant ids then count from 1, the draft's first.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from trt_spec.plan.finding import Finding
from trt_spec.spec.model import Model, Role, Spec

LaunchMode = Literal["leader", "orchestrator-spawned", "orchestrator-prespawned", "llmapi"]

START_ORDER: tuple[Role, ...] = ("draft", "target")  # of participant ids; rank 0 is the orchestrator


@dataclass(frozen=True)
class RolePlacement:
    """One engine: ``gpus[r]`` is the GPU of its rank r, counted over all nodes, and ``device_ids[r]`` on its node.

    ``nodes[r]`` is that node. ``participant_ids`` are MPI ranks, empty where the orchestrator spawns them.
    """

    gpus: tuple[int, ...]
    nodes: tuple[int, ...]
    device_ids: tuple[int, ...]
    participant_ids: tuple[int, ...]


@dataclass(frozen=True)
class Placement:
    """Engines over GPUs. ``world_size`` is what mpirun starts; ``mode`` is how Triton finds the ranks."""

    roles: Mapping[Role, RolePlacement]
    mode: LaunchMode
    world_size: int
    fast_logits: bool

    @property
    def visible_gpus(self) -> int:
        """GPUs that a process must see on each node.

        Engines are told device ids of their node, so that is every id up to the highest, also where the placement
        leaves the first ones idle.
        """
        return 1 + max(device for placed in self.roles.values() for device in placed.device_ids)

    @property
    def node_count(self) -> int:
        """Nodes up to the last one with a rank."""
        return 1 + max(node for placed in self.roles.values() for node in placed.nodes)

    def process_count(self, node: int) -> int:
        """Processes of the server on a node: a rank for each GPU, and on the first node the orchestrator."""
        if self.mode == "llmapi":  # the draft runs in the target's processes
            return self.roles["target"].nodes.count(node)
        ranks = sum(placed.nodes.count(node) for placed in self.roles.values())
        return ranks + (self.mode != "leader" and node == 0)

    @property
    def shared_gpus(self) -> tuple[int, ...]:
        """GPUs that run a rank of both engines."""
        taken = [set(placed.gpus) for placed in self.roles.values()]
        return tuple(sorted(set.intersection(*taken))) if len(taken) > 1 else ()


def plan_placement(spec: Spec, *, may_spawn: bool = True) -> tuple[Placement, tuple[Finding, ...]]:
    """Where the engines of a spec with hardware run, and what stands against it. Pure.

    ``may_spawn`` is False where no rank can be spawned by another (Slurm): then all start together. Without explicit
    ``gpus`` a model takes the first ones. Backend llmapi splits the draft as the target and runs both in one process
    group.
    """
    models = {"target": spec.target} if _engines(spec) == 1 else dict(spec.models())
    mode = _launch_mode(spec, may_spawn)
    participants = _participants(spec, mode)
    gpus_per_node = spec.hardware.gpus if spec.hardware else 1
    roles: dict[Role, RolePlacement] = {}
    for role in spec.models():
        gpus = role_gpus(spec, models.get(role, spec.target))
        roles[role] = RolePlacement(
            gpus=gpus,
            nodes=tuple(gpu // gpus_per_node for gpu in gpus),
            device_ids=tuple(gpu % gpus_per_node for gpu in gpus),
            participant_ids=participants.get(role, ()),
        )
    if mode == "orchestrator-spawned":
        world_size = 1
    else:
        world_size = (mode == "orchestrator-prespawned") + sum(len(ids) for ids in participants.values())
    fast_logits = mode != "leader" and spec.speculation.accept == "fast_logits"
    placement = Placement(roles, mode, world_size, fast_logits)
    return placement, tuple(_check(spec, placement))


def role_gpus(spec: Spec, model: Model) -> tuple[int, ...]:
    """The GPUs of a model's ranks: those the spec names, else the first ones."""
    return tuple(range(model.tensor_parallel * model.pipeline_parallel)) if model.gpus is None else model.gpus


def _engines(spec: Spec) -> int:
    return 2 if spec.backend == "engine" and spec.draft is not None else 1


def _launch_mode(spec: Spec, may_spawn: bool) -> LaunchMode:
    if spec.backend == "llmapi":
        return "llmapi"  # TensorRT-LLM's own processes: plan/llmapi_launch.py
    if _engines(spec) == 1:
        return "leader"
    if not may_spawn or spec.speculation.accept == "fast_logits" or _spans_nodes(spec):
        return "orchestrator-prespawned"
    return "orchestrator-spawned"


def _spans_nodes(spec: Spec) -> bool:
    if spec.hardware is None:
        return False
    used = {gpu for model in spec.models().values() for gpu in role_gpus(spec, model)}
    return max(used) >= spec.hardware.gpus


def _participants(spec: Spec, mode: LaunchMode) -> dict[Role, tuple[int, ...]]:
    """MPI ranks by role; none where Triton spawns them."""
    if mode in ("leader", "llmapi"):
        return {"target": tuple(range(len(role_gpus(spec, spec.target))))}
    if mode == "orchestrator-spawned":
        return {}
    ids: dict[Role, tuple[int, ...]] = {}
    first = 1
    for role in START_ORDER:
        ranks = len(role_gpus(spec, spec.models()[role]))
        ids[role] = tuple(range(first, first + ranks))
        first += ranks
    return ids


def _check(spec: Spec, placement: Placement) -> Iterator[Finding]:
    yield from _check_pipeline(spec)
    yield from _check_nodes(spec, placement)
    yield from _check_fast_logits(placement)
    yield from _check_idle(spec, placement)


def _check_pipeline(spec: Spec) -> Iterator[Finding]:
    if spec.backend != "engine" or not spec.external_draft_len:
        return
    for role, model in spec.models().items():
        if model.pipeline_parallel > 1:
            yield Finding(
                "place-pipeline",
                "warn",
                f"{role}: pipeline_parallel {model.pipeline_parallel}, but TensorRT-LLM's matrix of draft-target "
                "lists tensor parallelism only.",
                f"Set {role}.pipeline_parallel to 1 and raise tensor_parallel, or try the pair with `trtspec verify`.",
                role,
            )


def _check_nodes(spec: Spec, placement: Placement) -> Iterator[Finding]:
    nodes = {node for placed in placement.roles.values() for node in placed.nodes}
    if nodes == {0} or spec.hardware is None:
        return
    if spec.backend == "llmapi":
        yield Finding(
            "place-nodes",
            "refuse",
            "Backend llmapi is planned on one node only, the GPUs named lie on several.",
            f"Use GPUs 0 to {spec.hardware.gpus - 1}.",
        )
        return
    if placement.mode == "orchestrator-prespawned":
        yield Finding(
            "place-nodes",
            "warn",
            f"The ranks lie on {len(nodes)} nodes: orchestrator mode with pre-spawned ranks, as NVIDIA documents it; "
            "not tried by trtspec.",
            f"GPUs 0 to {spec.hardware.gpus - 1} lie on one node.",
        )
    for role, placed in placement.roles.items():
        if len(set(placed.nodes)) > 1 and spec.models()[role].tensor_parallel > 1:
            yield Finding(
                "place-split-nodes",
                "warn",
                f"{role}: tensor_parallel {spec.models()[role].tensor_parallel} crosses nodes: two all-reduces a "
                "layer run over the network, which the speed model does not see.",
                f"Keep the ranks of {role} on one node.",
                role,
            )


def _check_fast_logits(placement: Placement) -> Iterator[Finding]:
    if placement.fast_logits:
        yield Finding(
            "place-fast-logits",
            "warn",
            "fast_logits hands the draft's raw logits from GPU to GPU: acceptance is exact for greedy requests and for "
            "temperature 1 without top_k or top_p.",
            "Use accept: logits for other sampling settings, or tokens.",
        )


def _check_idle(spec: Spec, placement: Placement) -> Iterator[Finding]:
    if spec.hardware is None or placement.mode == "llmapi":  # there the draft always shares the target's GPUs
        return
    used = {gpu for placed in placement.roles.values() for gpu in placed.gpus}
    idle = spec.hardware.gpus * spec.hardware.nodes - len(used)
    if idle > 0 and placement.shared_gpus and spec.draft is not None:
        free = next(gpu for gpu in range(spec.hardware.gpus * spec.hardware.nodes) if gpu not in used)
        yield Finding(
            "place-idle-gpus",
            "note",
            f"{idle} of the GPUs run nothing while draft and target share GPU {placement.shared_gpus[0]}.",
            f"The draft could have its own: draft.gpus: [{free}].",
        )
