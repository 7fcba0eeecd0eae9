"""launch.sh: how Triton starts on a GPU host by hand, from the same description as `trtspec serve`."""

from __future__ import annotations

import ipaddress
import shlex
from collections.abc import Sequence

from trt_spec.deploy.host.container import ALL_ADDRESSES, ContainerRun, container_argv, container_name
from trt_spec.deploy.shell_paths import is_plain
from trt_spec.deploy.shell_words import quote_word
from trt_spec.deploy.targets.target import GpuTarget
from trt_spec.errors import SpecError
from trt_spec.plan.launch import TRITONSERVER
from trt_spec.spec.reference import ReferenceKind, judge_reference

FOLDER = "triton"  # of the workspace
SCRIPT = "launch.sh"
ADDRESS_VARIABLE = "TRTSPEC_ADDRESS"  # by it the script outside tells the one inside what to bind
ADDRESS = "\0"  # stands for the address, which the script finds out; no path and no other word holds this character
_REPOSITORY = "repository"
_NAME_CHARACTERS = 12
_WIDTH = 100


def triton_repository(workspace: str) -> str:
    """How the launch of this target names the repository, a path for a process whose folder is the workspace.

    Triton hands it to a shell, so one that a shell would take apart is named from there.
    """
    path = f"{workspace}/{_REPOSITORY}"
    return path if is_plain(path) else _REPOSITORY


def render_triton(target: GpuTarget) -> dict[str, str]:
    """Files by their names relative to WORKSPACE/triton: a script that becomes Triton, or the container that runs it.

    ``target.launch`` names the repository as ``triton_repository`` does, and binds ``ADDRESS``. Raises SpecError for
    several nodes.
    """
    nodes = target.placement.node_count
    if nodes > 1:
        raise SpecError(
            f"{SCRIPT} starts Triton on one node, the placement needs {nodes}.",
            remedy="Use `trtspec deploy --to slurm` or `--to k8s`, or GPUs of one node.",
        )
    lines = (
        "#!/usr/bin/env bash",
        f"# Starts Triton for {target.spec.name}, deployment {target.deployment_id[:_NAME_CHARACTERS]}.",
        "# Inside NVIDIA's container it becomes the server; elsewhere it starts that container, which runs it again.",
        "set -euo pipefail",
        "",
        f"workspace={quote_word(target.workspace)}",
        *_address_lines(target.spec.serve.host),
        "",
        f'if ! cd "$workspace" || [ ! -d {_REPOSITORY} ]; then',
        f'    echo "{SCRIPT}: $workspace/{_REPOSITORY} is not there. Run: trtspec deploy" >&2',
        "    exit 3",
        "fi",
        "",
        f"if [ ! -x {TRITONSERVER} ]; then",
        *(f"    {line}" for line in _container_lines(target)),
        "fi",
        "",
        *(f"export {name}={quote_word(value)}" for name, value in sorted(target.launch.environment.items())),
        *_render_command("exec", *_quote(target.launch.command())),
    )
    return {SCRIPT: "\n".join(lines) + "\n"}


def _address_lines(host: str) -> tuple[str, ...]:
    """Docker and Triton bind addresses, no names."""
    try:
        ipaddress.IPv4Address(host)
    except ValueError:
        return (
            f"host=${{{ADDRESS_VARIABLE}:-{host}}}",
            'if ! found=$(getent ahostsv4 "$host"); then',
            f'    echo "{SCRIPT}: serve.host is $host, and no IPv4 address is known here for that name." >&2',
            "    exit 2",
            "fi",
            "address=${found%%[[:space:]]*}",
        )
    return (f"address=${{{ADDRESS_VARIABLE}:-{host}}}",)


def _container_lines(target: GpuTarget) -> tuple[str, ...]:
    if hub_models := _find_models(target, "hub"):
        # As `trtspec serve` says: a container would download them at every start, without the user's token.
        words = f"{SCRIPT}: download {' and '.join(hub_models)} and name the folders in the spec, or run this inside"
        return (f"echo {shlex.quote(f'{words} {target.image}.')} >&2", "exit 3")
    return (
        "if ! command -v docker >/dev/null; then",
        f'    echo "{SCRIPT}: there is neither {TRITONSERVER} nor docker here." >&2',
        "    exit 3",
        "fi",
        *_render_command("exec", *_container_words(target)),
    )


def _find_models(target: GpuTarget, kind: ReferenceKind) -> tuple[str, ...]:
    """Models of backend llmapi, which are read at the start; engines lie in the workspace."""
    if target.spec.backend != "llmapi":
        return ()
    models = (model.model for model in target.spec.models().values())
    return tuple(dict.fromkeys(model for model in models if judge_reference(model) == kind))


def _container_words(target: GpuTarget) -> list[str]:
    run = ContainerRun(
        image=target.image,
        gpus=range(target.placement.visible_gpus),
        processes=target.placement.process_count(0),
        address=ADDRESS,
        ports=tuple(target.spec.serve.ports.values()),
        mounts=(target.workspace, *_find_models(target, "folder")),
        environment={ADDRESS_VARIABLE: ALL_ADDRESSES},
        name=container_name(target.deployment_id[:_NAME_CHARACTERS]),
        workdir=target.workspace,
    )
    return [*_quote(container_argv(run)), "bash", f'"$workspace/{FOLDER}/{SCRIPT}"']


def _quote(words: Sequence[str]) -> list[str]:
    """Words for a shell, which puts the address in their place."""
    return ['"$address"'.join(quote_word(part) if part else "" for part in word.split(ADDRESS)) for word in words]


def _render_command(*words: str) -> tuple[str, ...]:
    """One command over several lines, words kept whole."""
    lines = [words[0]]
    for word in words[1:]:
        if len(lines[-1]) + len(word) < _WIDTH:
            lines[-1] += f" {word}"
        else:
            lines.append(f"    {word}")
    return (*(f"{line} \\" for line in lines[:-1]), lines[-1])
