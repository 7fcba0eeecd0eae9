"""Stands in for docker: runs the tool's stand-in here, if the command line is one that docker would take.

It checks what a container would: known options, an image of the matrix, every path of the command below a mounted
folder. Containers are files in STANDIN_CONTAINERS while they run.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

from calls import record_call

DATA = Path(__file__).parents[2] / "trt_spec" / "plan" / "toolchain"
HERE = Path(__file__).parent
SWITCHES = ("--rm", "--init")
VALUES = ("--name", "--label", "--user", "--gpus", "--shm-size", "--ulimit", "--volume", "--workdir", "--env")
INSIDE = {"/app/examples/quantization/quantize.py": HERE / "quantize.py"}


def main() -> int:
    record_call("docker")
    state = Path(os.environ["STANDIN_CONTAINERS"])
    verb, *rest = sys.argv[1:]
    if verb == "info":
        return 1 if os.environ.get("STANDIN_DOCKER_DOWN") else 0
    if verb == "ps":
        assert rest[:3] == ["--all", "--quiet", "--filter"], rest
        label = rest[3].removeprefix("label=")
        for file in sorted(state.glob("*.json")):
            if label in json.loads(file.read_text())["labels"]:
                print(file.stem)
        return 0
    if verb == "rm":
        return remove(state, rest)
    assert verb == "run", verb
    return run(state, rest)


def remove(state: Path, arguments: list[str]) -> int:
    assert arguments[0] == "--force", arguments
    for name in arguments[1:]:
        file = state / f"{name}.json"
        if file.is_file():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(json.loads(file.read_text())["pid"], signal.SIGKILL)
            file.unlink(missing_ok=True)
    return 0


def run(state: Path, words: list[str]) -> int:
    options: dict[str, list[str]] = {}
    while words and words[0].startswith("-"):
        name = words.pop(0)
        if name in SWITCHES:
            options[name] = []
        elif name in VALUES:
            options.setdefault(name, []).append(words.pop(0))
        else:
            print(f"unknown flag: {name}")
            return 125
    image, *command = words
    versions = {row["container"]: row["tensorrt_llm"] for row in json.loads((DATA / "containers.json").read_text())}
    if image not in versions:
        print(f"docker: Error response from daemon: manifest for {image} not found: manifest unknown.")
        return 125
    mounted = [Path(volume.split(":")[1]) for volume in options["--volume"]]
    for word in command:
        if word.startswith("/") and not word.startswith("/app/"):
            assert any(Path(word).is_relative_to(folder) for folder in mounted), f"{word} is not mounted"
    environment = {"PATH": os.environ["PATH"], "STANDIN_VERSION": versions[image]}
    for setting in options.get("--env", []):
        name, equals, value = setting.partition("=")
        environment[name] = value if equals else os.environ[name]
    environment |= {
        name: value for name, value in os.environ.items() if name.startswith("STANDIN_") and name != "STANDIN_VERSION"
    }
    (quoted,) = options["--gpus"]
    environment["CUDA_VISIBLE_DEVICES"] = quoted.strip('"').removeprefix("device=")
    program = (
        [sys.executable, *(str(INSIDE.get(word, word)) for word in command[1:])] if command[0] == "python3" else command
    )
    child = subprocess.Popen(program, env=environment, cwd=options["--workdir"][0], start_new_session=True)
    file = state / f"{options['--name'][0]}.json"
    file.write_text(json.dumps({"labels": options["--label"], "pid": child.pid}))
    try:
        return child.wait() % 256 if child.wait() >= 0 else 128 - child.wait()
    finally:
        file.unlink(missing_ok=True)


if __name__ == "__main__":
    sys.exit(main())
