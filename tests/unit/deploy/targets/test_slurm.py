"""The Slurm script: without a word from shellcheck, and run here with stand-ins for srun, scontrol and apptainer."""

import functools
import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from trt_spec.deploy.targets.slurm import render_slurm
from trt_spec.errors import SpecError
from trt_spec.plan.launch import TRITONSERVER

from .conftest import ALONE, TWO_NODES

SCONTROL = '#!/bin/bash\n[ "$1 $2" = "show hostnames" ] && printf "%s\\n" node-a node-b\n'
# Tells its own words and environment as JSON, the host file's lines included.
RECORDER = """#!{python}
import json, os, sys
file = os.environ.get("SLURM_HOSTFILE")
hosts = open(file).read().split() if file else None
with open(os.environ["RECORD"], "w") as record:
    print(json.dumps({{"argv": sys.argv[1:], "env": dict(os.environ), "hosts": hosts}}), file=record)
"""


@pytest.fixture
def make_slurm(make_target):
    """make_slurm(**spec sections) -> a target of the host slurm."""
    return functools.partial(make_target, "slurm")


@pytest.fixture
def run_batch(tmp_path):
    """run_batch(target, **environment) -> what the stand-in for srun was given, or the script's ``error``."""

    def run(target, **environment):
        for name, text in (("scontrol", SCONTROL), ("srun", RECORDER.format(python=sys.executable))):
            (tmp_path / name).write_text(text)
            (tmp_path / name).chmod(0o755)
        script = tmp_path / "trtspec.sbatch"
        script.write_text(render_slurm(target)["trtspec.sbatch"])
        record = tmp_path / "record"
        given = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "RECORD": str(record), "SLURM_JOB_NODELIST": "node-[a-b]"}
        done = subprocess.run(["bash", script], env={**given, **environment}, capture_output=True, text=True)
        if done.returncode:
            return {"error": done.stderr, "code": done.returncode}
        return {**json.loads(record.read_text()), "stdout": done.stdout}

    return run


def options_of(target):
    return dict(re.findall(r"^#SBATCH --([a-z-]+)=(.*)$", render_slurm(target)["trtspec.sbatch"], re.MULTILINE))


@pytest.mark.parametrize("changes", [{}, TWO_NODES, ALONE])
def test_shellcheck_has_nothing_to_say(make_slurm, tmp_path, changes):
    paths = []
    for name, text in render_slurm(make_slurm(**changes)).items():
        paths.append(tmp_path / name)
        paths[-1].write_text(text)
    checker = Path(sys.executable).with_name("shellcheck")
    done = subprocess.run([checker, "--shell=bash", *paths], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "")


def test_shellcheck_passes_a_path_that_looks_like_a_variable(make_target, tmp_path):
    script = tmp_path / "trtspec.sbatch"
    script.write_text(render_slurm(make_target("slurm", workspace="dollar$HOME`id`"))["trtspec.sbatch"])
    checker = Path(sys.executable).with_name("shellcheck")
    done = subprocess.run([checker, "--shell=bash", script], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "")


def test_such_a_path_is_taken_as_it_is(make_target, run_batch):
    target = make_target("slurm", workspace="dollar$HOME`id`")
    assert f"--container-mounts={target.workspace}:/models:ro" in run_batch(target)["argv"]


def test_triton_listens_on_addresses(make_slurm):
    (argv,) = make_slurm(serve={"host": "localhost"}, **ALONE).launch.ranks[:1]
    assert "--http-address=127.0.0.1" in argv
    with pytest.raises(SpecError, match=r"'gpu-node\.local', and Triton listens on addresses only"):
        make_slurm(serve={"host": "gpu-node.local"})


def test_the_job_asks_for_what_the_ranks_need(make_slurm):
    options = options_of(make_slurm())
    assert (options["nodes"], options["ntasks-per-node"], options["gpus-per-node"]) == ("1", "6", "4")
    assert int(options["mem"].rstrip("G")) > 400
    assert options["job-name"] == "pair"


def test_srun_starts_every_rank_once_in_the_container(make_slurm, run_batch):
    target = make_slurm()
    ran = run_batch(target)
    assert "--mpi=pmix" in ran["argv"]
    assert "--ntasks=6" in ran["argv"]
    assert "--container-image=nvcr.io#nvidia/tritonserver:26.07-trtllm-python-py3" in ran["argv"]
    assert f"--container-mounts={target.workspace}:/models:ro" in ran["argv"]
    assert ran["argv"][-2:] == ["bash", "/models/slurm/rank.sh"]
    assert ran["hosts"] is None
    assert (ran["env"]["TRTLLM_ORCHESTRATOR"], ran["env"]["TRTLLM_ORCHESTRATOR_SPAWN_PROCESSES"]) == ("1", "0")
    passed = next(word for word in ran["argv"] if word.startswith("--container-env="))
    assert set(target.launch.environment) < set(passed.removeprefix("--container-env=").split(","))
    assert "node-a, 127.0.0.1:8000" in ran["stdout"]


def test_a_workspace_may_have_any_path_that_can_be_mounted(make_slurm, run_batch):
    workspace = "/srv/o'neil}x$y`z\"모델"
    ran = run_batch(replace(make_slurm(), workspace=workspace))
    assert f"--container-mounts={workspace}:/models:ro" in ran["argv"]
    moved = run_batch(make_slurm(), TRTSPEC_WORKSPACE="/lustre/pair")
    assert "--container-mounts=/lustre/pair:/models:ro" in moved["argv"]


def test_ranks_of_several_nodes_go_where_the_placement_says(make_slurm, run_batch):
    target = make_slurm(**TWO_NODES)
    ran = run_batch(target, SLURM_NTASKS_PER_NODE="6")
    assert ran["hosts"] == [("node-a", "node-b")[node] for node in target.launch.nodes]
    assert "--distribution=arbitrary" in ran["argv"]
    assert not any(word.startswith("--nodes") for word in ran["argv"])
    assert "SLURM_NTASKS_PER_NODE" not in ran["env"]
    assert not Path(ran["env"]["SLURM_HOSTFILE"]).exists()
    options = options_of(target)
    assert (options["nodes"], options["gpus-per-node"]) == ("2", "4")
    assert int(options["ntasks-per-node"]) == max(target.launch.nodes.count(node) for node in (0, 1))


def test_apptainer_takes_the_place_of_pyxis(make_slurm, run_batch):
    target = make_slurm()
    ran = run_batch(target, TRTSPEC_CONTAINER="apptainer", TRTSPEC_IMAGE="/images/triton.sif")
    task = ran["argv"][ran["argv"].index("apptainer") :]
    bind = ["--bind", f"{target.workspace}:/models:ro"]
    assert task == ["apptainer", "exec", "--nv", "--no-home", *bind, "/images/triton.sif", "bash", task[-1]]
    assert not any(word.startswith("--container") for word in ran["argv"])
    wrong = run_batch(make_slurm(), TRTSPEC_CONTAINER="podman")
    assert wrong["code"] == 2
    assert "podman, expected pyxis or apptainer" in wrong["error"]


def test_every_rank_runs_its_own_command(make_slurm, tmp_path):
    server = tmp_path / "tritonserver"
    server.write_text('#!/bin/bash\nprintf "%s\\n" "$@"\n')
    server.chmod(0o755)
    target = make_slurm()
    script = tmp_path / "rank.sh"
    script.write_text(render_slurm(target)["rank.sh"].replace(TRITONSERVER, str(server)))
    assert target.launch.world_size == 6
    for rank, argv in enumerate(target.launch.ranks):
        done = subprocess.run(["bash", script], env={"SLURM_PROCID": str(rank)}, capture_output=True, text=True)
        assert tuple(done.stdout.splitlines()) == argv[1:]
    beyond = subprocess.run(["bash", script], env={"SLURM_PROCID": "6"}, capture_output=True, text=True)
    assert (beyond.returncode, "none of the 6" in beyond.stderr) == (2, True)


def test_one_engine_needs_no_orchestrator(make_slurm, run_batch):
    target = make_slurm(**ALONE)
    assert target.launch.mode == "leader"
    ran = run_batch(target)
    assert "--ntasks=4" in ran["argv"]
    assert "TRTLLM_ORCHESTRATOR" not in ran["env"]


def test_what_slurm_cannot_do_is_refused(make_slurm):
    for workspace in ("/srv/my models", "/srv/a:b", "/srv/a,b"):
        with pytest.raises(SpecError, match="cannot be mounted"):
            render_slurm(replace(make_slurm(), workspace=workspace))


def test_a_changed_spec_changes_only_what_it_should(make_slurm):
    before = render_slurm(make_slurm())
    after = render_slurm(make_slurm(serve={"http_port": 9000}))
    lines = [set(text.splitlines()) for text in (before["trtspec.sbatch"], after["trtspec.sbatch"])]
    assert {line.split()[0] for line in lines[0] ^ lines[1]} == {"echo"}
    assert before["rank.sh"].replace("--http-port=8000", "--http-port=9000") == after["rank.sh"]
    after = render_slurm(make_slurm(limits={"max_batch_size": 2}))
    assert after["trtspec.sbatch"] == before["trtspec.sbatch"]
    assert "thread-pool-size=20" in before["rank.sh"]
    assert after["rank.sh"] == before["rank.sh"].replace("thread-pool-size=20", "thread-pool-size=8")
