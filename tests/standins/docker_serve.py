"""Stands in for docker where it serves: starts the command in a session of its own, as the daemon would.

The image's tritonserver is the stand-in, with the published address in place of the container's. A container is a file
in STANDIN_CONTAINERS while it runs; the client forwards SIGTERM, and its death leaves the container running.
"""

from __future__ import annotations

import contextlib
import csv
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from calls import record_call

HERE = Path(sys.argv[0]).absolute().parent
INSIDE = "/opt/tritonserver/bin/tritonserver"
SWITCHES = ("--rm", "--init")
VALUES = ("--name", "--gpus", "--shm-size", "--ulimit", "--publish", "--mount", "--workdir", "--env")


def main() -> int:
    record_call("docker")
    verb, *rest = sys.argv[1:]
    if verb == "info":
        return 1 if os.environ.get("STANDIN_DOCKER_DOWN") else 0
    if verb == "rm":
        return remove(rest)
    assert verb == "run", verb
    options: dict[str, list[str]] = {}
    while rest and rest[0].startswith("-"):
        name = rest.pop(0)
        assert name in SWITCHES or name in VALUES, name
        options.setdefault(name, []).extend(() if name in SWITCHES else (rest.pop(0),))
    return run(options, rest[1:])


def run(options: dict[str, list[str]], command: list[str]) -> int:
    mounted = [Path(read_mount(mount)) for mount in options["--mount"]]
    workdir = Path(options["--workdir"][0])
    for path in (
        workdir,
        *(Path(word.partition("=")[2]) for word in command if word.startswith("--model-repository=")),
    ):
        assert any((workdir / path).is_relative_to(folder) for folder in mounted), f"{path} is not mounted"
    address = options["--publish"][0].rsplit(":", 2)[0]
    command = [word.replace("address=0.0.0.0", f"address={address}").replace(INSIDE, str(HERE / "tritonserver"))
               for word in command]  # fmt: skip
    environment = {name: value for name, value in os.environ.items() if name.startswith("STANDIN_") or name == "PATH"}
    environment |= dict(setting.split("=", 1) for setting in options["--env"])
    child = subprocess.Popen(command, env=environment, cwd=workdir, start_new_session=True)
    file = Path(os.environ["STANDIN_CONTAINERS"], f"{options['--name'][0]}.json")
    file.write_text(json.dumps({"pid": child.pid}))
    signal.signal(signal.SIGTERM, lambda *_: child.terminate())
    code = child.wait()
    file.unlink(missing_ok=True)
    return code if code >= 0 else 128 - code


def read_mount(text: str) -> str:
    (fields,) = csv.reader([text])
    assert fields[0] == "type=bind", fields
    assert fields[3:] == ["readonly"], fields
    source, target = fields[1].removeprefix("source="), fields[2].removeprefix("target=")
    assert source == target
    return source


def remove(arguments: list[str]) -> int:
    flag, name = arguments
    assert flag == "--force", flag
    file = Path(os.environ["STANDIN_CONTAINERS"], f"{name}.json")
    if not file.is_file():
        print(f"Error response from daemon: No such container: {name}", file=sys.stderr)
        return 1
    pid = json.loads(file.read_text())["pid"]
    for entry in Path("/proc").iterdir():  # the daemon ends all processes of a container
        if entry.name.isdigit():
            with contextlib.suppress(OSError, ProcessLookupError):
                if os.getsid(int(entry.name)) == pid:
                    os.kill(int(entry.name), signal.SIGKILL)
    time.sleep(0.05)
    file.unlink(missing_ok=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
