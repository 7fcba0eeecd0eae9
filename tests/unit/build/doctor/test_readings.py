"""Reading a machine through stand-ins for nvidia-smi, docker and podman, made here."""

import json
import os
import time
from pathlib import Path

import pytest

from trt_spec.build.doctor import readings
from trt_spec.build.doctor.extras import find_missing, is_within
from trt_spec.build.doctor.machine import GpuReading
from trt_spec.build.doctor.readings import (
    find_hub_login,
    read_machine,
    read_nvidia,
    read_place,
    read_runtime,
)
from trt_spec.build.doctor.tools import run_tool
from trt_spec.plan.hardware import MIB

TOPOLOGY = "\tGPU0\tGPU1\tCPU Affinity\nGPU0\t X \tNV18\t0-55\nGPU1\tNV18\t X \t0-55\n\nLegend:\n  X    = Self\n"
PEERS = " \tGPU0\tGPU1\n GPU0\tX\tOK\n GPU1\tOK\tX\n\nLegend:\n  X    = Self\n"
ROWS = "0, NVIDIA H200, 143771, 590.44.01, 9.0\n1, NVIDIA H200, 143771, 590.44.01, 9.0"
NVIDIA_SMI = f"""case "$*" in
  "topo -m") echo '{TOPOLOGY}';;
  "topo -p2p r") echo '{PEERS}';;
  --query-gpu=*) echo '{ROWS}';;
esac"""


@pytest.fixture(autouse=True)
def no_driver_file(monkeypatch, tmp_path):
    monkeypatch.setattr(readings, "DRIVER_FILE", tmp_path / "driver-version")
    monkeypatch.setattr(readings, "CDI_FOLDERS", (tmp_path / "cdi",))


def test_two_gpus_and_their_links(programs):
    programs("nvidia-smi", NVIDIA_SMI)
    nvidia = read_nvidia()
    assert nvidia.fault is None
    assert nvidia.driver == "590.44.01"
    assert nvidia.gpus == tuple(GpuReading(index, "NVIDIA H200", 143771 * MIB, "9.0") for index in (0, 1))
    assert nvidia.links == {(0, 1): "NV18"}
    assert nvidia.peers == {(0, 1): "OK"}


def test_what_a_gpu_does_not_tell(programs):
    programs("nvidia-smi", "echo '0, NVIDIA GB10, [N/A], 580.95.05, [Not Supported]'")
    assert read_nvidia().gpus == (GpuReading(0, "NVIDIA GB10", None, None),)


def test_a_driver_too_old_for_compute_capabilities(programs):
    refusal = """echo 'Field "compute_cap" is not a valid field to query.'; exit 2"""
    programs("nvidia-smi", f'case "$*" in *compute_cap*) {refusal};; *) echo "0, Tesla V100, 32510, 450.80.02";; esac')
    nvidia = read_nvidia()
    assert (nvidia.driver, nvidia.fault) == ("450.80.02", None)
    assert nvidia.gpus == (GpuReading(0, "Tesla V100", 32510 * MIB, None),)


@pytest.mark.parametrize(
    ("script", "says"),
    [
        ("echo 'Failed to initialize NVML: Driver/library version mismatch'; exit 18", "version mismatch"),
        ("echo 'No devices were found'; exit 6", "No devices were found"),
        ("echo 'No devices were found'", "lists no GPU"),
        ("exit 9", "ended with code 9"),
    ],
)
def test_a_driver_in_trouble_says_so_itself(programs, tmp_path, script, says):
    programs("nvidia-smi", script)
    line = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  590.44.01  Tue Nov 11 02:01:02 UTC 2026\n"
    (tmp_path / "driver-version").write_text(line)
    nvidia = read_nvidia()
    assert nvidia.gpus == () and says in nvidia.fault
    assert nvidia.driver == "590.44.01"


def test_no_driver_at_all(programs):
    nvidia = read_nvidia()
    assert (nvidia.driver, nvidia.gpus) == (None, ())
    assert nvidia.fault == "nvidia-smi is not on PATH"


def test_a_program_that_hangs_is_ended_with_its_children(programs, tmp_path):
    pid_file = tmp_path / "pid"
    programs("slow", f"/bin/sleep 60 &\necho $! > {pid_file}\nwait")
    answer = run_tool(("slow",), timeout_s=0.5)
    assert answer.fault == "slow did not answer within 0.5 s"
    child = int(pid_file.read_text())
    for _ in range(100):
        if not _is_running(child):
            break
        time.sleep(0.05)
    assert not _is_running(child)


def _is_running(pid):
    """A child that nobody has waited for yet is dead all the same."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def report(**fields):
    return f"echo '{json.dumps(fields)}'"


def test_docker_with_a_daemon(programs, tmp_path):
    programs("docker", report(ServerVersion="28.2.2", Runtimes={"runc": {}, "nvidia": {}}))
    runtime = read_runtime("docker")
    assert (runtime.version, runtime.sees_gpus, runtime.fault) == ("28.2.2", True, None)
    programs("docker", report(ServerVersion="28.2.2", Runtimes={"runc": {}}))
    assert not read_runtime("docker").sees_gpus
    (tmp_path / "cdi").mkdir()
    (tmp_path / "cdi" / "nvidia.yaml").touch()
    assert read_runtime("docker").sees_gpus


@pytest.mark.parametrize(
    ("script", "says"),
    [
        ("echo '{\"ServerVersion\":\"\"}'; echo 'Cannot connect to the Docker daemon' >&2; exit 1", "Cannot connect"),
        (report(ServerErrors=["permission denied"]), "permission denied"),
        ("echo 'docker: not json'", "does not answer"),
        ("echo '[]'", "does not answer"),
    ],
)
def test_a_client_without_a_daemon_counts_as_absent(programs, script, says):
    programs("docker", script)
    runtime = read_runtime("docker")
    assert runtime.version is None and says in runtime.fault


def test_podman_needs_no_daemon(programs):
    programs("podman", report(host={"arch": "amd64"}, version={"Version": "5.4.0"}))
    assert read_runtime("podman").version == "5.4.0"
    assert read_runtime("docker").fault == "docker is not on PATH"


def test_room_for_a_folder_that_is_not_there_yet(programs, tmp_path):
    place = read_place("workspace", tmp_path / "a" / "b")
    assert (place.path, place.is_writable) == (str(tmp_path), True)
    status = os.statvfs(tmp_path)
    assert abs(place.free_bytes - status.f_bavail * status.f_frsize) < 10 << 30  # others write meanwhile
    (tmp_path / "file").touch()
    assert read_place("workspace", tmp_path / "file" / "x").free_bytes is None


def test_a_df_that_fails_is_a_fault(programs, tmp_path):
    (tmp_path / "bin" / "df").unlink()
    programs("df", "echo 'df: /x: Stale file handle' >&2; exit 1")
    place = read_place("cache", tmp_path)
    assert place.free_bytes is None and "Stale" in place.fault


def test_a_login_is_found_and_never_kept(tmp_path):
    assert find_hub_login({}, tmp_path) is None
    assert find_hub_login({"HF_TOKEN": "hf_planted"}, tmp_path) == "$HF_TOKEN"
    assert find_hub_login({"HF_TOKEN": " "}, tmp_path) is None
    token = tmp_path / ".cache" / "huggingface" / "token"
    token.parent.mkdir(parents=True)
    token.write_text("\n")
    assert find_hub_login({}, tmp_path) is None
    token.write_text("hf_planted\n")
    assert find_hub_login({}, tmp_path) == str(token)
    assert find_hub_login({"HF_HOME": str(tmp_path / "other")}, tmp_path) is None
    assert find_hub_login({"HF_TOKEN_PATH": str(token), "HF_HOME": "/nowhere"}, tmp_path) == str(token)


def test_no_reading_holds_a_token(programs, monkeypatch, tmp_path):
    monkeypatch.setenv("HF_TOKEN", "hf_planted")
    programs("docker", 'echo "cannot connect: $HF_TOKEN" >&2; exit 1')
    programs("nvidia-smi", 'echo "$HF_TOKEN"; exit 1')
    machine = read_machine(tmp_path, tmp_path)
    assert machine.hub_login == "$HF_TOKEN"
    assert "hf_planted" not in repr(machine)


@pytest.mark.parametrize(
    ("version", "bounds", "expected"),
    [
        ("1.24.0", ">=1.24", True),
        ("1.23.9", ">=1.24", False),
        ("0.7", "==0.7.0", True),
        ("1.2.1", ">=0.17,<=1.2.1", True),
        ("1.3.0rc3", ">=0.17,<=1.2.1", False),
        ("2.0", "<2", False),
        ("1.0", "", True),
        ("1.0", "!=1.0", True),
        ("git", ">=1", True),
    ],
)
def test_bounds_of_versions(version, bounds, expected):
    assert is_within(version, bounds) is expected


def install(folder, name, version, requires=()):
    info = folder / f"{name}-{version}.dist-info"
    info.mkdir()
    lines = [f"Requires-Dist: {line}" for line in requires]
    (info / "METADATA").write_text("\n".join(["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}", *lines]))


def test_extras_are_followed_into_those_of_their_packages(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    requires = (
        "trtspec-probe-base",
        'trtspec-probe-client[grpc]>=2; extra == "local"',
        'trtspec-probe-absent>=1 ; extra == "local"',
        'trtspec-probe-client==1.*; extra == "plot"',
        'trtspec-probe-client<2; extra == "hub"',
    )
    install(tmp_path, "trtspec_probe", "1.0", requires)
    install(tmp_path, "trtspec_probe_client", "2.5", ["trtspec-probe-inner>=3; extra == 'grpc'", "trtspec-probe-x"])
    missing = find_missing("trtspec-probe")
    assert missing == {
        "local": ("trtspec-probe-inner>=3", "trtspec-probe-absent>=1"),
        "client": (),
        "hub": ("trtspec-probe-client<2 (found 2.5)",),
        "plot": (),
        "engine": (),
    }
    assert find_missing("trtspec-probe-nothing") is None
