"""Start Triton on a model repository, wait until it is ready, and leave no half-started one behind."""

from __future__ import annotations

import contextlib
import resource
import secrets
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from trt_spec.deploy.host.embedded import embedded_command
from trt_spec.deploy.host.gpu_host.host import GpuHost
from trt_spec.deploy.host.health import explain_failure, is_ready, owns_ports
from trt_spec.deploy.host.interrupts import deferred_signals, interrupting_signals
from trt_spec.deploy.host.log_digest import is_hopeless, read_log_tail
from trt_spec.deploy.host.openai_endpoint import check_endpoint_installed, start_endpoint
from trt_spec.deploy.host.ports import check_ports, resolve_address
from trt_spec.deploy.host.process_group import MARK_VARIABLE, read_start_ticks
from trt_spec.deploy.host.server import (
    LOG_FILE,
    SERVER_FILE,
    RunningServer,
    end_server,
    load_server,
    shm_prefix_of,
    stop_triton,
    write_server,
)
from trt_spec.deploy.host.start_command import StartCommand
from trt_spec.deploy.host.triton import TritonInstall, find_triton, write_backends
from trt_spec.deploy.ownership import read_marker
from trt_spec.deploy.pbtxt import ModelConfig, parse_pbtxt
from trt_spec.deploy.shell_paths import is_plain
from trt_spec.errors import EnvironmentMissing, SpecError
from trt_spec.spec.model import Serve
from trt_spec.util.files import exclusive

BACKENDS_FOLDER = "backends"
READY_TIMEOUT_S = 180.0
STACK_BYTES = 64 << 20
_POLL_S = 0.1
_CORRECT = "Correct what the log names, then start again."
_FAILED_START_GRACE_S = 2.0  # a server that hangs while it loads does not answer SIGTERM


@dataclass(frozen=True)
class LaunchOptions:
    """What to serve, from where, and where it listens.

    ``gpu_host`` None: the embedded Triton, with ``backends``, which are made in the workspace at every start if None.
    """

    repository: Path
    workspace: Path
    serve: Serve = field(default_factory=Serve)
    timeout_s: float = READY_TIMEOUT_S
    backends: Path | None = None
    gpu_host: GpuHost | None = None


def launch_triton(options: LaunchOptions, on_wait: Callable[[float], None] | None = None) -> RunningServer:
    """Start Triton and return once every model is ready; ``on_wait`` is called with the seconds waited so far.

    The server outlives this process; ``stop_triton`` ends it. Raises EnvironmentMissing (no Triton, port in use,
    already running), SpecError (repository missing or incomplete) and StepFailed, with the log's explanation, when the
    server ends or is not ready in time; nothing runs then.
    """
    install = find_triton() if options.gpu_host is None else None
    requests = _count_requests(check_repository(options.repository))
    if options.serve.openai_port is not None:
        check_endpoint_installed()
    serve = options.serve.model_copy(update={"host": resolve_address(options.serve.host)})
    options.workspace.mkdir(parents=True, exist_ok=True)
    started: RunningServer | None = None
    with interrupting_signals():
        try:
            with exclusive(options.workspace):
                check_not_running(options.workspace)
                check_ports(serve.host, serve.all_ports, _find_port_remedy(options))
                token = secrets.token_hex(4)
                command = _plan_start(options, install, serve, token, requests)
                with deferred_signals():  # until it is on record, nobody could find and stop the server
                    started = _start(options, command, serve, shm_prefix_of(token))
            _wait_until_ready(started, options.timeout_s, on_wait)
            if serve.openai_port is not None:
                started = start_endpoint(started, options.workspace.absolute(), serve.openai_port)
        except BaseException:
            if started is not None:
                end_server(load_server(options.workspace) or started, _FAILED_START_GRACE_S)
                stop_triton(options.workspace)
            raise
    return started


@contextlib.contextmanager
def running_triton(options: LaunchOptions, on_wait: Callable[[float], None] | None = None) -> Iterator[RunningServer]:
    """Run Triton for the length of a with block; it is stopped on every way out, Ctrl-C, SIGTERM and SIGHUP included.

    The two signals raise KeyboardInterrupt meanwhile. Main thread only.
    """
    with interrupting_signals():
        server = launch_triton(options, on_wait)
        try:
            yield server
        finally:
            stop_triton(options.workspace)


@contextlib.contextmanager
def _deep_stack() -> Iterator[None]:
    """What is started in the block gets a stack of 64 MiB: Triton parses a form-encoded body of 4 MiB on its stack."""
    soft, hard = resource.getrlimit(resource.RLIMIT_STACK)
    wanted = STACK_BYTES if hard == resource.RLIM_INFINITY else min(STACK_BYTES, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_STACK, (wanted, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_STACK, (soft, hard))


def check_repository(repository: Path) -> list[ModelConfig]:
    """The models' configurations; SpecError unless every model folder has what Triton needs to answer for it.

    A Python model without its model.py is the worst of these: Triton waits for it forever and logs nothing.
    """
    remedy = "Write the repository with `trtspec deploy SPEC`."
    configs = {
        file.parent: parse_pbtxt(file.read_text(encoding="utf-8", errors="replace"), str(file))
        for file in sorted(repository.glob("*/config.pbtxt"))
    }
    if not configs:
        raise SpecError(f"{repository} is no model repository: no folder in it has a config.pbtxt.", remedy=remedy)
    for model, config in configs.items():
        if not is_plain(model.name):
            raise SpecError(
                f"Model folder {model} has a character in its name that Triton passes to a shell.",
                remedy="Name models with letters, digits, '_', '-' and '.' only.",
            )
        versions = [entry for entry in model.iterdir() if entry.is_dir() and entry.name.isdigit()]
        if not versions and config.backend != "ensemble":
            raise SpecError(f"Model folder {model} has no version folder, expected {model / '1'}.", remedy=remedy)
        if config.backend == "python":
            newest = max(versions, key=lambda entry: int(entry.name))
            if not (newest / "model.py").is_file():
                raise SpecError(f"{newest / 'model.py'} is missing: {model.name} is a Python model.", remedy=remedy)
    return list(configs.values())


def _count_requests(configs: Sequence[ModelConfig]) -> int:
    """How many requests are answered at a time: what the orchestrators let in, or else the largest batch."""
    stated = [config.parameters.get("max_inflight_requests", "") for config in configs]
    counts = [int(count) for count in stated if count.isdecimal()] or [config.max_batch_size for config in configs]
    return max(1, *counts)


def check_not_running(workspace: Path) -> None:
    """Raise EnvironmentMissing if a server of this workspace runs; the leftovers of one that is gone are removed."""
    server = load_server(workspace)
    if server is not None and server.is_alive():
        raise EnvironmentMissing(
            f"Triton already runs for {workspace} (process {server.pid}, {server.http_url}).",
            remedy=f"Stop it with `trtspec stop {workspace}`.",
        )
    stop_triton(workspace)


def _find_port_remedy(options: LaunchOptions) -> str:
    """Name the command that frees a port, where a server of a neighbouring workspace holds it; else nothing."""
    wanted = set(options.serve.ports.values())
    for file in sorted(options.workspace.absolute().parent.glob(f"*/{SERVER_FILE}")):
        server = load_server(file.parent)
        if server is not None and server.is_alive() and wanted.intersection(server.ports.values()):
            return f"`trtspec stop {file.parent}` stops the trtspec server that holds it."
    return ""


def _plan_start(
    options: LaunchOptions, install: TritonInstall | None, serve: Serve, token: str, requests: int
) -> StartCommand:
    if options.gpu_host is not None:
        return options.gpu_host.command(serve, token)
    assert install is not None
    workspace = options.workspace.absolute()
    backends = options.backends or write_backends(install, workspace / BACKENDS_FOLDER)
    return embedded_command(install, workspace, options.repository, backends, serve, token, requests)


def _start(options: LaunchOptions, command: StartCommand, serve: Serve, shm_prefix: str) -> RunningServer:
    workspace = options.workspace.absolute()
    log = workspace / LOG_FILE
    with log.open("wb") as output, _deep_stack():
        # A session of its own: Ctrl-C in the terminal reaches us alone, and it can be ended as a whole. The working
        # directory comes first on the models' Python path, so it must be a folder without Python files.
        process = subprocess.Popen(
            command.argv,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=workspace,
            env={**command.environment, MARK_VARIABLE: shm_prefix},
            start_new_session=True,
        )
    server = RunningServer(
        pid=process.pid,
        start_ticks=read_start_ticks(process.pid) or 0,
        host=serve.host,
        http_port=serve.http_port,
        grpc_port=serve.grpc_port,
        metrics_port=serve.metrics_port,
        repository=str(options.repository.absolute()),
        log=str(log),
        shm_prefix=shm_prefix,
        deployment_id=(read_marker(options.repository) or {}).get("deployment_id"),
        container=command.container,
        stop_timeout_s=command.stop_timeout_s,
    )
    process.returncode = 0  # from here on the process is known by its record, not by this object
    try:
        write_server(workspace, server)
    except BaseException:
        end_server(server, _FAILED_START_GRACE_S)
        raise
    return server


def _wait_until_ready(server: RunningServer, timeout_s: float, on_wait: Callable[[float], None] | None) -> None:
    start = time.monotonic()
    while True:
        if is_ready(server) and server.is_alive() and owns_ports(server):
            return
        waited = time.monotonic() - start
        if not server.is_alive():
            raise explain_failure(server, "Triton ended before it was ready", _CORRECT)
        if is_hopeless(read_log_tail(Path(server.log))):
            raise explain_failure(server, "A model's process cannot start", _CORRECT)
        if waited > timeout_s:
            found = f"Triton was not ready after {timeout_s:g} s"
            raise explain_failure(server, found, "Raise --timeout if the models only load slowly.")
        if on_wait is not None:
            on_wait(waited)
        time.sleep(_POLL_S)
