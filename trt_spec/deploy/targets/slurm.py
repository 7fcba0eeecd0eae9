"""Slurm batch script of a deployment: srun starts every MPI rank itself, in NVIDIA's container.

No rank may be spawned by another: "MPI_Comm_spawn is known to not be available with PMIx and Slurm" (NVIDIA/pyxis wiki,
Frequently asked questions), and tensorrtllm_backend's README (v0.18.2, Orchestrator Mode) warns of it too. So two
engines need the pre-spawned orchestrator here, also on one node. None of this was run on a cluster.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence

from trt_spec.deploy.targets.sizes import CPUS_PER_PROCESS, ceil_gib, size_node
from trt_spec.deploy.targets.target import CONTAINER_ROOT, GpuTarget
from trt_spec.errors import SpecError

BATCH_FILE, RANK_FILE = "trtspec.sbatch", "rank.sh"
RANK_SCRIPT = f"{CONTAINER_ROOT}/slurm/{RANK_FILE}"
_UNMOUNTABLE = re.compile(r"[\s:,]")  # pyxis splits mounts at , and :, enroot's table at white space


def render_slurm(target: GpuTarget) -> dict[str, str]:
    """Files by their names relative to WORKSPACE/slurm: the batch script, and what each of its tasks runs.

    Raises SpecError for a workspace whose path cannot be mounted.
    """
    _check(target)
    return {BATCH_FILE: _render_batch(target), RANK_FILE: _render_ranks(target)}


def _check(target: GpuTarget) -> None:
    found = _UNMOUNTABLE.search(target.workspace)
    if found:
        raise SpecError(
            f"{target.workspace} holds {found[0]!r}, and cannot be mounted into a container by Slurm.",
            remedy="Build in a workspace whose path has no white space, comma or colon (-o).",
        )


def _render_batch(target: GpuTarget) -> str:
    launch, name = target.launch, target.spec.name
    variables = ",".join([*launch.environment, "PYTHONNOUSERSITE"])
    exports = [f"export {key}={shlex.quote(value)}" for key, value in launch.environment.items()]
    lines = [
        "#!/bin/bash",
        f"# Written by trtspec deploy for {name}. Partition, account and time limit are options of sbatch.",
        *(f"#SBATCH --{key}={value}" for key, value in _plan_options(target).items()),
        "",
        "set -euo pipefail",
        "",
        f"workspace=${{TRTSPEC_WORKSPACE:-{shlex.quote(target.workspace)}}}",
        *exports,
        "export PYTHONNOUSERSITE=1",
        "",
        'mapfile -t nodes < <(scontrol show hostnames "$SLURM_JOB_NODELIST")',
        f'echo "Triton will listen on ${{nodes[0]}}, {target.spec.serve.host}:{target.spec.serve.http_port}"',
        *_place_ranks(target),
        "",
        f"task=(bash {RANK_SCRIPT})",
        'case "${TRTSPEC_CONTAINER:-pyxis}" in',
        "  pyxis)",
        f"    image=${{TRTSPEC_IMAGE:-{shlex.quote(_enroot_image(target.image))}}}",
        "    container=(",
        '      "--container-image=$image"',
        f'      "--container-mounts=$workspace:{CONTAINER_ROOT}:ro"',
        f'      "--container-env={variables}"',
        "      --no-container-mount-home",
        "    )",
        "    ;;",
        "  apptainer)",
        "    container=()",
        f"    image=${{TRTSPEC_IMAGE:-{shlex.quote(f'docker://{target.image}')}}}",
        f'    task=(apptainer exec --nv --no-home --bind "$workspace:{CONTAINER_ROOT}:ro" "$image" "${{task[@]}}")',
        "    ;;",
        "  *)",
        '    echo "TRTSPEC_CONTAINER is $TRTSPEC_CONTAINER, expected pyxis or apptainer" >&2',
        "    exit 2",
        "    ;;",
        "esac",
        "",
        f"srun {shlex.join(_plan_step(target))} \\",
        '  "${container[@]}" "${task[@]}"',
    ]
    return "\n".join(lines) + "\n"


def _plan_options(target: GpuTarget) -> dict[str, str]:
    """The #SBATCH lines. Each node gets what the busiest one needs."""
    size = size_node(target)
    return {
        "job-name": target.spec.name,
        "nodes": str(target.placement.node_count),
        "ntasks-per-node": str(max(size.slots)),
        "cpus-per-task": str(CPUS_PER_PROCESS),
        "gpus-per-node": str(target.placement.visible_gpus),
        "mem": f"{ceil_gib(size.memory_bytes)}G",
        "output": "%x-%j.log",
    }


def _plan_step(target: GpuTarget) -> Sequence[str]:
    return (
        "--mpi=pmix",
        f"--ntasks={target.launch.world_size}",
        f"--cpus-per-task={CPUS_PER_PROCESS}",  # not inherited from the job since Slurm 22.05
        "--cpu-bind=none",  # rank 0 runs far more threads than the others
        "--kill-on-bad-exit=1",  # no rank is of use without the others
        "--label",
        *(("--distribution=arbitrary",) if target.placement.node_count > 1 else ()),
    )


def _place_ranks(target: GpuTarget) -> list[str]:
    """Several nodes: which rank runs where is the launch's to say, so a host file lists a node for each rank."""
    if target.placement.node_count == 1:
        return []
    order = " ".join(map(str, target.launch.nodes))
    return [
        "",
        "unset SLURM_NTASKS_PER_NODE  # the job's, for the busiest node",
        "SLURM_HOSTFILE=$(mktemp)",
        "export SLURM_HOSTFILE",
        "trap 'rm -f \"$SLURM_HOSTFILE\"' EXIT",
        f"for node in {order}; do",
        '  printf "%s\\n" "${nodes[node]}"',
        'done > "$SLURM_HOSTFILE"',
    ]


def _render_ranks(target: GpuTarget) -> str:
    cases = [
        line
        for rank, argv in enumerate(target.launch.ranks)
        for line in (f"  {rank})", f"    exec {shlex.join(argv)}", "    ;;")
    ]
    lines = [
        "#!/bin/bash",
        "# Written by trtspec deploy: the command of one MPI rank, run by srun inside the container.",
        "set -euo pipefail",
        'case "$SLURM_PROCID" in',
        *cases,
        "  *)",
        f'    echo "rank $SLURM_PROCID is none of the {target.launch.world_size} that were planned" >&2',
        "    exit 2",
        "    ;;",
        "esac",
    ]
    return "\n".join(lines) + "\n"


def _enroot_image(image: str) -> str:
    """enroot separates the registry with # (pyxis, --container-image)."""
    registry, _, path = image.partition("/")
    return f"{registry}#{path}" if "." in registry and path else image
