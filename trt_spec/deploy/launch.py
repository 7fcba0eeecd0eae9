"""Start the embedded Triton on a model repository, wait until it is ready, and leave no half-started one behind."""

from __future__ import annotations

import contextlib
import os
import resource
import secrets
import signal
import subprocess
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from trt_spec.deploy.log_digest import is_hopeless, read_log_tail, render_log_digest
from trt_spec.deploy.ownership import read_marker
from trt_spec.deploy.pbtxt import parse_pbtxt
from trt_spec.deploy.ports import check_ports, resolve_address
from trt_spec.deploy.process_group import read_start_ticks
from trt_spec.deploy.server import (
    EXIT_TIMEOUT_S,
    LOG_FILE,
    SERVER_FILE,
    RunningServer,
    end_server,
    load_server,
    stop_triton,
    write_server,
)
from trt_spec.deploy.shell_paths import is_plain, link_plain_path
from trt_spec.deploy.triton import TritonInstall, find_triton, write_backends
from trt_spec.errors import EnvironmentMissing, SpecError, StepFailed
from trt_spec.util.files import exclusive

BACKENDS_FOLDER = "backends"
REPOSITORY_LINK = "served-repository"
BACKENDS_LINK = "served-backends"
PYTHON_BACKEND_THREADS = 128  # with Triton's default a handful of calls between models would be in flight at once
READY_TIMEOUT_S = 180.0
STACK_BYTES = 64 << 20
_POLL_S = 0.1
_PROBE_TIMEOUT_S = 2.0
_FAILED_START_GRACE_S = 2.0  # a server that hangs while it loads does not answer SIGTERM


@dataclass(frozen=True)
class LaunchOptions:
    """What to serve, from where, and on which ports. ``backends`` None: made in the workspace at every start."""

    repository: Path
    workspace: Path
    host: str = "127.0.0.1"
    http_port: int = 8000
    grpc_port: int = 8001
    metrics_port: int = 8002
    timeout_s: float = READY_TIMEOUT_S
    backends: Path | None = None

    @property
    def ports(self) -> dict[str, int]:
        """Port numbers by the name of their spec field."""
        return {"http_port": self.http_port, "grpc_port": self.grpc_port, "metrics_port": self.metrics_port}


def launch_triton(options: LaunchOptions, on_wait: Callable[[float], None] | None = None) -> RunningServer:
    """Start Triton and return once every model is ready; ``on_wait`` is called with the seconds waited so far.

    The server outlives this process; ``stop_triton`` ends it. Raises EnvironmentMissing (no Triton, port in use,
    already running), SpecError (repository missing or incomplete) and StepFailed, with the log's explanation, when the
    server ends or is not ready in time; nothing runs then.
    """
    install = find_triton()
    check_repository(options.repository)
    address = resolve_address(options.host)
    options.workspace.mkdir(parents=True, exist_ok=True)
    started: RunningServer | None = None
    with _interrupting_signals():
        try:
            with exclusive(options.workspace):
                check_not_running(options.workspace)
                check_ports(address, options.ports, _find_port_remedy(options))
                backends = options.backends or write_backends(install, options.workspace / BACKENDS_FOLDER)
                with _deferred_signals():  # until it is on record, nobody could find and stop the server
                    started = _start(install, options, backends, address)
            _wait_until_ready(started, options.timeout_s, on_wait)
        except BaseException:
            if started is not None:
                end_server(started, _FAILED_START_GRACE_S)
                stop_triton(options.workspace)
            raise
    return started


@contextlib.contextmanager
def running_triton(options: LaunchOptions, on_wait: Callable[[float], None] | None = None) -> Iterator[RunningServer]:
    """Run Triton for the length of a with block; it is stopped on every way out, Ctrl-C, SIGTERM and SIGHUP included.

    The two signals raise KeyboardInterrupt meanwhile. Main thread only.
    """
    with _interrupting_signals():
        server = launch_triton(options, on_wait)
        try:
            yield server
        finally:
            stop_triton(options.workspace)


@contextlib.contextmanager
def _handled(handler: Callable[[int, FrameType | None], None], numbers: tuple[signal.Signals, ...]) -> Iterator[None]:
    """Give these signals a handler for a block; only the main thread can, and ignored ones stay so (nohup)."""
    before = {}
    if threading.current_thread() is threading.main_thread():
        before = {number: known for number in numbers if (known := signal.getsignal(number)) is not signal.SIG_IGN}
    for number in before:
        signal.signal(number, handler)
    try:
        yield
    finally:
        for number, known in before.items():
            signal.signal(number, known)


@contextlib.contextmanager
def _deferred_signals() -> Iterator[None]:
    """Ctrl-C, SIGTERM and SIGHUP take effect after the block."""
    arrived: list[int] = []
    with _handled(lambda number, _frame: arrived.append(number), (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)):
        yield
    for number in arrived:
        signal.raise_signal(number)


def _interrupting_signals() -> contextlib.AbstractContextManager[None]:
    """SIGTERM and SIGHUP raise KeyboardInterrupt: Triton has a session of its own and would outlive a killed parent."""
    return _handled(signal.default_int_handler, (signal.SIGTERM, signal.SIGHUP))


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


def check_repository(repository: Path) -> None:
    """Raise SpecError unless every model folder has what Triton needs to answer for it, or say what is wrong.

    A Python model without its model.py is the worst of these: Triton waits for it forever and logs nothing.
    """
    remedy = "Write the repository with `trtspec deploy SPEC`."
    models = sorted(path.parent for path in repository.glob("*/config.pbtxt"))
    if not models:
        raise SpecError(f"{repository} is no model repository: no folder in it has a config.pbtxt.", remedy=remedy)
    for model in models:
        if not is_plain(model.name):
            raise SpecError(
                f"Model folder {model} has a character in its name that Triton passes to a shell.",
                remedy="Name models with letters, digits, '_', '-' and '.' only.",
            )
        file = model / "config.pbtxt"
        config = parse_pbtxt(file.read_text(encoding="utf-8", errors="replace"), str(file))
        versions = [entry for entry in model.iterdir() if entry.is_dir() and entry.name.isdigit()]
        if not versions and config.backend != "ensemble":
            raise SpecError(f"Model folder {model} has no version folder, expected {model / '1'}.", remedy=remedy)
        if config.backend == "python":
            newest = max(versions, key=lambda entry: int(entry.name))
            if not (newest / "model.py").is_file():
                raise SpecError(f"{newest / 'model.py'} is missing: {model.name} is a Python model.", remedy=remedy)


def judge_server(server: RunningServer) -> StepFailed | None:
    """Return why a server that was running is gone, None while it runs."""
    if server.is_alive():
        return None
    return _explain(server, f"Triton (process {server.pid}) has ended", "Look at the log, then start it again.")


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
    for file in sorted(options.workspace.absolute().parent.glob(f"*/{SERVER_FILE}")):
        server = load_server(file.parent)
        if server is not None and server.is_alive():
            held = {server.http_port, server.grpc_port, server.metrics_port}.intersection(options.ports.values())
            if held:
                return f"`trtspec stop {file.parent}` stops the trtspec server that holds it."
    return ""


def _start(install: TritonInstall, options: LaunchOptions, backends: Path, address: str) -> RunningServer:
    workspace = options.workspace.absolute()
    prefix = f"trtspec_{secrets.token_hex(4)}_"
    log = workspace / LOG_FILE
    repository = link_plain_path(options.repository, workspace, REPOSITORY_LINK)
    backends_path = link_plain_path(backends, workspace, BACKENDS_LINK)
    command = _plan_command(install, options, repository, backends_path, address, prefix)
    with log.open("wb") as output, _deep_stack():
        # A session of its own: Ctrl-C in the terminal reaches us alone, and the group can be ended as a whole. The
        # working directory comes first on the models' Python path, so it must be a folder without Python files.
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=workspace,
            env=install.resolve_environment(dict(os.environ)),
            start_new_session=True,
        )
    server = RunningServer(
        pid=process.pid,
        start_ticks=read_start_ticks(process.pid) or 0,
        host=address,
        http_port=options.http_port,
        grpc_port=options.grpc_port,
        metrics_port=options.metrics_port,
        repository=str(options.repository.absolute()),
        log=str(log),
        shm_prefix=prefix,
        deployment_id=(read_marker(options.repository) or {}).get("deployment_id"),
    )
    process.returncode = 0  # from here on the process is known by its record, not by this object
    try:
        write_server(workspace, server)
    except BaseException:
        end_server(server, _FAILED_START_GRACE_S)
        raise
    return server


def _plan_command(
    install: TritonInstall, options: LaunchOptions, repository: str, backends: str, address: str, shm_prefix: str
) -> tuple[str, ...]:
    return (
        str(install.server),
        f"--model-repository={repository}",
        f"--backend-directory={backends}",
        "--model-control-mode=none",
        "--strict-readiness=true",
        "--disable-auto-complete-config",  # our configurations are complete; else every model is loaded twice
        f"--exit-timeout-secs={EXIT_TIMEOUT_S}",
        f"--http-address={address}",
        f"--grpc-address={address}",
        f"--metrics-address={address}",
        f"--http-port={options.http_port}",
        f"--grpc-port={options.grpc_port}",
        f"--metrics-port={options.metrics_port}",
        f"--backend-config=python,shm-region-prefix-name={shm_prefix}",
        f"--backend-config=python,thread-pool-size={PYTHON_BACKEND_THREADS}",
    )


def _wait_until_ready(server: RunningServer, timeout_s: float, on_wait: Callable[[float], None] | None) -> None:
    start = time.monotonic()
    while True:
        # The port was free before the start, so whoever answers there while the process lives is this server.
        if _is_ready(server) and server.is_alive():
            return
        waited = time.monotonic() - start
        if not server.is_alive():
            raise _explain(server, "Triton ended before it was ready", "Correct what the log names, then start again.")
        if is_hopeless(read_log_tail(Path(server.log))):
            raise _explain(server, "A model's process cannot start", "Correct what the log names, then start again.")
        if waited > timeout_s:
            found = f"Triton was not ready after {timeout_s:g} s"
            raise _explain(server, found, "Raise --timeout if the models only load slowly.")
        if on_wait is not None:
            on_wait(waited)
        time.sleep(_POLL_S)


def _is_ready(server: RunningServer) -> bool:
    # No proxy: urllib would send even a request to this machine through one that the environment names.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(f"{server.http_url}/v2/health/ready", timeout=_PROBE_TIMEOUT_S) as answer:
            return bool(answer.status == 200)
    except (OSError, urllib.error.URLError):
        return False


def _explain(server: RunningServer, found: str, remedy: str) -> StepFailed:
    digest = render_log_digest(read_log_tail(Path(server.log)))
    said = f" Its log says: {' | '.join(digest.splitlines())}." if digest else " Its log is empty."
    return StepFailed(
        f"{found}.{said}",
        remedy=f"{remedy} The whole log: {server.log}.",
        step="serve",
        log_path=Path(server.log),
    )
