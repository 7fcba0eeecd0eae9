"""How Triton starts on a GPU host: the command of each MPI rank, and the environment of all of them.

The command lines are those of NVIDIA's scripts/launch_triton_server.py (read at tensorrtllm_backend v0.18.2 and
v0.19.0 and TensorRT-LLM 0a2e2c1f), which has no option for the Python backend's thread pool and none for addresses.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from trt_spec.plan.engine_record import MODEL_NAMES
from trt_spec.plan.placement import LaunchMode, Placement
from trt_spec.spec.model import Serve

TRITONSERVER = "/opt/tritonserver/bin/tritonserver"  # in NVIDIA's containers
READY_PATH = "/v2/health/ready"  # of its HTTP port; answers 200 once every model is loaded
SPARE_THREADS = 4  # for what is short: a response on its way, a metric
MOST_THREADS = 1024  # they are all started at once, for each Python model, and containers have limits
SHM_PREFIX = "trtspec_"
# mpirun binds a lone process to one core by default, and with it Triton and its models (measured, Open MPI 4 and 5).
MPIRUN = ("mpirun", "--allow-run-as-root", "--bind-to", "none")
EXIT_TIMEOUT_S = 30  # Triton's default, stated because those who stop the server wait a little longer than this

OFFLINE = {"HF_HUB_OFFLINE": "1"}  # a path that is not there must not be taken for a name on the hub
ENVIRONMENT = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", **OFFLINE}  # device ids count as nvidia-smi does
ORCHESTRATOR = "TRTLLM_ORCHESTRATOR"
SPAWN_PROCESSES = "TRTLLM_ORCHESTRATOR_SPAWN_PROCESSES"


@dataclass(frozen=True)
class Launch:
    """How Triton starts on a GPU host. ``ranks[r]`` is the tritonserver command of MPI rank r.

    ``environment`` goes to every rank; ``nodes[r]`` is the node that rank r runs on, counted from 0. Rank 0 answers
    requests; the others leave their process inside the loading of a model and never open a port
    (tensorrtllm_backend v0.18.2, model_instance_state.cc:745), so all may carry the same ones.
    """

    mode: LaunchMode
    environment: Mapping[str, str]
    ranks: tuple[tuple[str, ...], ...]
    nodes: tuple[int, ...]

    @property
    def world_size(self) -> int:
        """MPI ranks that mpirun starts; what the orchestrator spawns comes on top."""
        return len(self.ranks)

    def command(self, hosts: Sequence[str] = ()) -> tuple[str, ...]:
        """The mpirun command line, a program context for each rank.

        ``hosts`` names the nodes where there are several, as "host:slots": mpirun then starts each rank on its own and
        hands it the environment, which Open MPI does not forward by itself.
        """
        if self.mode == "llmapi" and self.world_size == 1:
            return self.ranks[0]  # as NVIDIA's own test starts it (--no-mpi)
        words = [*MPIRUN]
        for rank, argv in enumerate(self.ranks):
            if rank:
                words.append(":")
            words += ["-n", "1"]
            if hosts:
                words += ["--host", hosts[self.nodes[rank]]]
                words += [word for name in self.environment for word in ("-x", name)]
            words += argv
        return tuple(words)

    def shell_line(self) -> str:
        """The command with its environment, as one line for a POSIX shell."""
        assignments = (f"{name}={shlex.quote(value)}" for name, value in self.environment.items())
        return f"{' '.join(assignments)} {shlex.join(self.command())}"


def plan_launch(
    placement: Placement,
    repository: str,
    serve: Serve,
    *,
    requests: int,
    program: str = TRITONSERVER,
    shm_prefix: str = SHM_PREFIX,
    visible_gpus: int | None = None,
) -> Launch:
    """The processes that serve ``repository``, a path as those processes see it. Pure.

    Two engines need the orchestrator, whatever their sizes: leader mode would hand both the same MPI ranks.
    ``requests`` is how many are answered at a time. ``program`` is tritonserver, ``shm_prefix`` begins the names of
    shared memory files. ``visible_gpus`` is how many a process sees where that is not for the placement to say:
    natively, on a host with more.
    """
    names = [MODEL_NAMES[role] for role in placement.roles]
    own: tuple[str, ...] = ()
    environment = dict(ENVIRONMENT)
    assert placement.mode != "llmapi", "plan_llmapi_launch is for that"
    if placement.mode != "leader":
        is_spawned = placement.mode == "orchestrator-spawned"
        environment |= {ORCHESTRATOR: "1", SPAWN_PROCESSES: "1" if is_spawned else "0"}
        own = _without_pools(visible_gpus or placement.visible_gpus) if is_spawned else ()
    threads = python_backend_threads(requests, len(placement.roles))
    ranks = tuple(
        (
            *server_argv(program, repository, serve, f"{shm_prefix}{rank}_", threads=threads),
            *own,
            *(() if rank == 0 else _engines_only(names)),
        )
        for rank in range(placement.world_size)
    )
    return Launch(placement.mode, environment, ranks, _rank_nodes(placement))


def server_argv(
    program: str,
    repository: str,
    serve: Serve,
    shm_prefix: str,
    *,
    threads: int,
    exit_timeout_s: int = EXIT_TIMEOUT_S,
) -> tuple[str, ...]:
    """What every tritonserver process gets. Options as `tritonserver --help` of 2.51 lists them."""
    return (
        program,
        f"--model-repository={repository}",
        "--disable-auto-complete-config",  # our configurations are complete; else every model is loaded twice
        "--exit-on-error=true",  # a server without one of its models is of no use here
        "--strict-readiness=true",
        f"--exit-timeout-secs={exit_timeout_s}",
        *(f"--{name}-address={serve.host}" for name in serve.ports),
        *(f"--{name}-port={port}" for name, port in serve.ports.items()),
        f"--backend-config=python,shm-region-prefix-name={shm_prefix}",
        f"--backend-config=python,thread-pool-size={threads}",
    )


def python_backend_threads(requests: int, engines: int = 2) -> int:
    """Threads that Triton itself keeps for each instance of a Python model, where ``requests`` are answered at a time.

    A call between models holds one until it is answered. Each request may have one under way to each of the
    ``engines``, since the draft may run ahead; calls that the draft engine never answers are no more than that either,
    for then the orchestrator stops asking it. There are only a few beside: threads are woken in turn, and one that has
    slept long finds nothing in the caches. On 2 cores a round of speculation takes 0.2 to 0.3 ms longer with 128
    threads than with 20 (benchmarks/orchestrators.py).
    """
    return min(engines * requests + SPARE_THREADS, MOST_THREADS)


def _without_pools(gpus: int) -> tuple[str, ...]:
    """The orchestrator's own process must not hold GPU memory that the spawned ranks need."""
    pools = tuple(f"--cuda-memory-pool-byte-size={gpu}:0" for gpu in range(gpus))
    return ("--pinned-memory-pool-byte-size=0", "--enable-peer-access=false", *pools)


def _engines_only(names: Sequence[str]) -> tuple[str, ...]:
    return ("--model-control-mode=explicit", *(f"--load-model={name}" for name in names))


def _rank_nodes(placement: Placement) -> tuple[int, ...]:
    """The node of each MPI rank; the orchestrator runs on the first, beside its HTTP clients' address."""
    nodes = dict.fromkeys(range(placement.world_size), 0)
    for placed in placement.roles.values():
        nodes |= dict(zip(placed.participant_ids, placed.nodes, strict=False))
    return tuple(nodes.values())
