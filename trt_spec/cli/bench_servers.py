"""Servers for ``trtspec bench``: the one that runs, or one built, deployed and started for its length."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

from trt_spec.build.run import BuildOptions, run_build
from trt_spec.cli.progress import StepProgress
from trt_spec.deploy.host.launch import running_triton
from trt_spec.deploy.host.ports import find_free_ports
from trt_spec.deploy.host.server import load_server
from trt_spec.deploy.workspace import deploy_workspace, resolve_launch
from trt_spec.plan.workspace import Workspace
from trt_spec.spec.model import Spec
from trt_spec.verify.bench.session import Address, System
from trt_spec.verify.bench.settings import PRIMARY, Sweeps
from trt_spec.verify.bench.variants import folder_of, vary_spec
from trt_spec.verify.deployment import resolve_url

Say = Callable[[str], None]


def list_systems(spec: Spec, workspace: Workspace, sweeps: Sweeps, say: Say) -> list[System]:
    """The spec's own system first. All specs are resolved now, so that a wrong one is told before anything runs."""
    systems = [System(PRIMARY, lambda: _running_or_started(spec, workspace, say))]
    for name in sweeps.systems:
        place = Workspace(workspace.root / "bench" / folder_of(name))
        systems.append(System(name, _starter(vary_spec(spec, name), place, workspace, say)))
    return systems


def _starter(
    spec: Spec, place: Workspace, shared: Workspace, say: Say
) -> Callable[[], contextlib.AbstractContextManager[Address]]:
    return lambda: _started(spec, place, say, shared)


@contextlib.contextmanager
def _running_or_started(spec: Spec, workspace: Workspace, say: Say) -> Iterator[Address]:
    server = load_server(workspace.root)
    if server is None or not server.is_alive():
        with _started(spec, workspace, say) as address:
            yield address
        return
    url = resolve_url(spec, workspace)  # refuses a server of an older build
    say(f"measuring the server that runs on {url}")
    yield Address(url, server.metrics_url, _tokenizer_folder(workspace))


@contextlib.contextmanager
def _started(spec: Spec, workspace: Workspace, say: Say, shared: Workspace | None = None) -> Iterator[Address]:
    workspace.root.mkdir(parents=True, exist_ok=True)
    if shared is not None:
        _share_target(shared, workspace)
    if spec.backend != "llmapi":
        with StepProgress() as progress:
            ran = run_build(BuildOptions(spec, workspace), progress.report).ran
        say(f"built {', '.join(ran)}" if ran else "everything is built")
    deploy_workspace(workspace, spec)
    launch = resolve_launch(workspace.root, None, find_free_ports())
    say("starting Triton")
    with running_triton(launch) as server:
        yield Address(server.grpc_url, server.metrics_url, _tokenizer_folder(workspace))


def _share_target(shared: Workspace, workspace: Workspace) -> None:
    """The target's engine is the same: linked, it is found as built. A build of another one replaces the link alone."""
    engine, link = shared.engine("target"), workspace.engine("target")
    if engine.is_dir() and not link.exists():
        link.parent.mkdir(parents=True, exist_ok=True)
        _link_tree(engine, link)


def _link_tree(source: Path, link: Path) -> None:
    def copy(one: str, other: str) -> None:
        try:
            os.link(one, other)
        except OSError:
            shutil.copy2(one, other)

    shutil.copytree(source, link, copy_function=copy)


def _tokenizer_folder(workspace: Workspace) -> Path | None:
    folder = workspace.engine("target")
    return folder if (folder / "tokenizer.json").is_file() else None
