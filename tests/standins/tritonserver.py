"""Stands in for tritonserver: knows its options, answers health, and has the processes that a real one has.

STANDIN_FAULT: load (a log of a failed load, STANDIN_LOG, and exit code 1), slow (never ready). It loads for
STANDIN_DELAY_S, and is not ready any more once the file STANDIN_UNREADY exists. Python models get a process each that
is called like Triton's stub, and an orchestrator that spawns gets STANDIN_WORKERS workers.
"""

from __future__ import annotations

import argparse
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from calls import record_call

HERE = Path(sys.argv[0]).absolute().parent
# Of `tritonserver --help` of 2.51, those that trtspec may use.
VALUES = ("model-repository", "model-control-mode", "exit-on-error", "strict-readiness", "exit-timeout-secs")
VALUES += tuple(f"{kind}-{what}" for kind in ("http", "grpc", "metrics") for what in ("address", "port"))
VALUES += ("pinned-memory-pool-byte-size", "enable-peer-access")
LISTS = ("backend-config", "load-model", "cuda-memory-pool-byte-size")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="tritonserver", allow_abbrev=False)
    for name in VALUES:
        parser.add_argument(f"--{name}")
    for name in LISTS:
        parser.add_argument(f"--{name}", action="append", default=[])
    parser.add_argument("--disable-auto-complete-config", action="store_true")
    return parser.parse_args()


def main() -> int:
    record_call("tritonserver")
    options = parse()
    repository = Path(options.model_repository)
    assert repository.is_dir(), f"{repository} is no folder from {Path.cwd()}"
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    if options.model_control_mode == "explicit":  # a worker's rank stays inside the loading of its model
        for name in options.load_model:
            assert (repository / name).is_dir(), name
        time.sleep(600)
    children = start_children(options, repository)
    try:
        return serve(options)
    finally:
        for child in children:
            child.kill()


def start_children(options: argparse.Namespace, repository: Path) -> list[subprocess.Popen[bytes]]:
    prefix = next(word for word in options.backend_config if "shm-region-prefix-name" in word).partition("name=")[2]
    stubs = [config.parent for config in repository.glob("*/config.pbtxt") if '"python"' in config.read_text()]
    commands = [[HERE / "triton_python_backend_stub", f"{stub}/1/model.py", f"{prefix}0"] for stub in stubs]
    if os.environ.get("TRTLLM_ORCHESTRATOR_SPAWN_PROCESSES") == "1":
        commands += [[HERE / "trtllmExecutorWorker"]] * int(os.environ.get("STANDIN_WORKERS", "1"))
    return [subprocess.Popen(command) for command in commands]


def serve(options: argparse.Namespace) -> int:
    fault = os.environ.get("STANDIN_FAULT")
    if fault == "load":
        print(Path(os.environ["STANDIN_LOG"]).read_text(), flush=True)
        return 1
    if fault == "slow":
        print('I1129 17:03:32.776142 8442 model_lifecycle.cc:472] "loading: tensorrt_llm:1"', flush=True)
        time.sleep(600)
    time.sleep(float(os.environ.get("STANDIN_DELAY_S", "0")))
    try:
        held = [
            socket.create_server((address, int(port)))
            for address, port in (
                (options.grpc_address, options.grpc_port),
                (options.metrics_address, options.metrics_port),
            )
        ]
        server = ThreadingHTTPServer((options.http_address, int(options.http_port)), Handler)
    except OSError as error:
        print(f'E1129 17:03:45.471810 9004 main.cc:257] "failed to start: Unavailable - {error}"', flush=True)
        time.sleep(1)  # the models are unloaded first
        return 1
    threading.Thread(target=server.serve_forever, daemon=True).start()
    signal.pause()
    return len(held)


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        gone = os.environ.get("STANDIN_UNREADY", "")
        self.send_response(503 if gone and Path(gone).exists() else 200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


if __name__ == "__main__":
    sys.exit(main())
