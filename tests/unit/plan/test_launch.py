"""The processes of every placement, held to the rules of NVIDIA's launcher by a checker of its own."""

import itertools
import shlex

import pytest

from trt_spec.plan.launch import EXIT_TIMEOUT_S, TRITONSERVER, plan_launch, python_backend_threads
from trt_spec.plan.placement import plan_placement
from trt_spec.spec.model import Serve, Spec

ACCEPTS = ("tokens", "logits", "fast_logits")
SPLITS = ("shared", "own", "next node")
TABLE = list(itertools.product(range(1, 9), range(1, 9), SPLITS, ACCEPTS))
SERVE = Serve(host="10.0.0.5", http_port=9000, grpc_port=9001, metrics_port=9002)


def make_pair(target: int, draft: int, split: str = "shared", accept: str = "tokens") -> Spec:
    """Eight GPUs a node; a draft of its own takes the eight after the target's, on this node or the next."""
    gpus, nodes = (16, 1) if split == "own" else (8, 2) if split == "next node" else (8, 1)
    return Spec.model_validate(
        {
            "name": "pair",
            "backend": "engine",
            "hardware": {"gpu": "H200", "gpus": gpus, "nodes": nodes},
            "target": {"model": "a/b", "tensor_parallel": target},
            "draft": {
                "model": "a/c",
                "tensor_parallel": draft,
                "gpus": None if split == "shared" else list(range(8, 8 + draft)),
            },
            "speculation": {"accept": accept},
        }
    )


def launch_of(spec: Spec):
    placement, found = plan_placement(spec)
    assert not [finding for finding in found if finding.severity == "refuse"]
    return placement, plan_launch(placement, "/r", SERVE, requests=8)


def broken_rules(spec: Spec, placement, launch) -> list[str]:
    """What of tensorrt-llm.md section 2.4 and llama_multi_instance.md a launch of two engines breaks."""
    sizes = {"target": spec.target.tensor_parallel, "draft": spec.draft.tensor_parallel}
    visible = 1 + max(device for placed in placement.roles.values() for device in placed.device_ids)
    broken = []
    if launch.environment.get("TRTLLM_ORCHESTRATOR") != "1":
        broken.append("two engines without the orchestrator")
    for role, placed in placement.roles.items():
        if len(placed.device_ids) != sizes[role]:
            broken.append(f"{role}: device ids are not one a rank")
        if len(set(zip(placed.nodes, placed.device_ids, strict=True))) != sizes[role]:
            broken.append(f"{role}: a device twice")
        if not all(0 <= device < visible for device in placed.device_ids):
            broken.append(f"{role}: a device that is not visible")
        if not all(0 <= node < spec.hardware.nodes for node in placed.nodes):
            broken.append(f"{role}: a node that is not there")
    ids = [placed.participant_ids for placed in placement.roles.values()]
    if launch.environment.get("TRTLLM_ORCHESTRATOR_SPAWN_PROCESSES") == "1":
        broken += _broken_spawned(spec, placement, launch, visible)
    else:
        broken += _broken_prespawned(launch, ids, sizes)
    return broken + _broken_processes(launch)


def _broken_spawned(spec, placement, launch, visible) -> list[str]:
    broken = []
    if spec.speculation.accept == "fast_logits":
        broken.append("fast logits with spawned ranks")
    if launch.world_size != 1:
        broken.append("spawned with a world size other than 1")
    if any(placed.participant_ids for placed in placement.roles.values()):
        broken.append("participant ids where the orchestrator makes the ranks")
    if any(node for placed in placement.roles.values() for node in placed.nodes):
        broken.append("spawned on another node")
    (argv,) = launch.ranks
    pools = [word for word in argv if word.startswith("--cuda-memory-pool-byte-size=")]
    if pools != [f"--cuda-memory-pool-byte-size={gpu}:0" for gpu in range(visible)]:
        broken.append("a GPU keeps a memory pool")
    if not {"--pinned-memory-pool-byte-size=0", "--enable-peer-access=false"} <= set(argv):
        broken.append("the orchestrator holds pinned memory or peer access")
    return broken


def _broken_prespawned(launch, ids, sizes) -> list[str]:
    broken = []
    flat = [rank for role_ids in ids for rank in role_ids]
    if launch.world_size != 1 + sum(sizes.values()):
        broken.append("world size is not 1 + the ranks of both engines")
    if 0 in flat:
        broken.append("rank 0 is the orchestrator")
    if len(set(flat)) != len(flat):
        broken.append("participant ids overlap")
    if sorted(map(len, ids)) != sorted(sizes.values()) or max(flat) >= launch.world_size:
        broken.append("participant ids do not name the ranks of an engine")
    if any("memory-pool" in word for argv in launch.ranks for word in argv):
        broken.append("pre-spawned ranks lose their memory pools")
    return broken


def _broken_processes(launch) -> list[str]:
    broken = []
    for rank, argv in enumerate(launch.ranks):
        loaded = {word.removeprefix("--load-model=") for word in argv if word.startswith("--load-model=")}
        explicit = "--model-control-mode=explicit" in argv
        wanted = (set(), False) if rank == 0 else ({"tensorrt_llm", "tensorrt_llm_draft"}, True)
        if (loaded, explicit) != wanted:
            broken.append(f"rank {rank} loads {loaded}")
    prefixes = [word for argv in launch.ranks for word in argv if "shm-region-prefix-name" in word]
    if len(set(prefixes)) != launch.world_size:
        broken.append("ranks share the names of shared memory files")
    return broken


def test_every_split_and_acceptance_up_to_eight_ranks():
    for row in TABLE:
        spec = make_pair(*row)
        assert broken_rules(spec, *launch_of(spec)) == [], row


def test_the_modes_of_the_table():
    """Spawned on one node, unless fast logits or another node need all ranks at once."""
    for target, draft, split, accept in TABLE:
        placement, launch = launch_of(make_pair(target, draft, split, accept))
        together = accept == "fast_logits" or split == "next node"
        assert launch.mode == ("orchestrator-prespawned" if together else "orchestrator-spawned")
        assert launch.world_size == placement.world_size == (1 + target + draft if together else 1)


def test_the_checker_finds_faults():
    """It would be worth nothing if it accepted what the cases are about."""
    spec = make_pair(2, 1, accept="fast_logits")
    placement, launch = launch_of(spec)
    leader = plan_launch(type(placement)(placement.roles, "leader", 2, False), "/r", SERVE, requests=8)
    assert "two engines without the orchestrator" in broken_rules(spec, placement, leader)
    for faulty, rule in (((1,), "participant ids overlap"), ((0,), "rank 0 is the orchestrator")):
        draft = placement.roles["draft"]
        roles = {**placement.roles, "draft": type(draft)(draft.gpus, draft.nodes, draft.device_ids, faulty)}
        roles["target"] = type(draft)((0, 1), (0, 0), (0, 1), (1, 2))
        assert rule in broken_rules(spec, type(placement)(roles, placement.mode, 4, True), launch)


def test_b074_unequal_splits_run_under_the_orchestrator():
    """Leader mode would give the draft of one rank and the target of two the same world."""
    _, launch = launch_of(make_pair(2, 1))
    assert launch.environment["TRTLLM_ORCHESTRATOR"] == "1"
    placement, _ = launch_of(make_pair(2, 1, accept="fast_logits"))
    assert placement.roles["draft"].participant_ids == (1,)
    assert placement.roles["target"].participant_ids == (2, 3)


def test_b079_two_engines_never_share_a_plain_mpirun():
    for row in TABLE:
        _, launch = launch_of(make_pair(*row))
        words = list(launch.command())
        assert launch.environment["TRTLLM_ORCHESTRATOR"] == "1"
        assert [words[i + 1] for i, word in enumerate(words) if word == "-n"] == ["1"] * launch.world_size


def test_b033_no_process_asks_the_hub():
    for row in ((1, 1, "shared", "tokens"), (2, 1, "own", "fast_logits")):
        _, launch = launch_of(make_pair(*row))
        assert launch.environment["HF_HUB_OFFLINE"] == "1"


@pytest.mark.parametrize("ranks", [1, 4])
def test_one_engine_is_led_by_its_first_rank(ranks):
    spec = Spec.model_validate(
        {
            "name": "alone",
            "backend": "engine",
            "hardware": {"gpu": "H200", "gpus": 8},
            "target": {"model": "a/b", "tensor_parallel": ranks},
            "speculation": {"mode": "none"},
        }
    )
    _, launch = launch_of(spec)
    assert (launch.mode, launch.world_size) == ("leader", ranks)
    assert launch.environment == {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "HF_HUB_OFFLINE": "1"}
    for argv in launch.ranks[1:]:
        assert argv[-2:] == ("--model-control-mode=explicit", "--load-model=tensorrt_llm")
    assert not any("memory-pool" in word for argv in launch.ranks for word in argv)


def test_one_process_in_full():
    placement, _ = launch_of(make_pair(1, 1))
    launch = plan_launch(placement, "/r", SERVE, requests=8, visible_gpus=8)  # natively on a host of eight
    assert launch.command() == (
        *("mpirun", "--allow-run-as-root", "--bind-to", "none", "-n", "1", TRITONSERVER, "--model-repository=/r"),
        *("--disable-auto-complete-config", "--exit-on-error=true", "--strict-readiness=true"),
        f"--exit-timeout-secs={EXIT_TIMEOUT_S}",
        *("--http-address=10.0.0.5", "--grpc-address=10.0.0.5", "--metrics-address=10.0.0.5"),
        *("--http-port=9000", "--grpc-port=9001", "--metrics-port=9002"),
        *("--backend-config=python,shm-region-prefix-name=trtspec_0_", "--backend-config=python,thread-pool-size=20"),
        *("--pinned-memory-pool-byte-size=0", "--enable-peer-access=false"),
        *(f"--cuda-memory-pool-byte-size={gpu}:0" for gpu in range(8)),
    )


def test_a_program_context_for_every_rank():
    _, launch = launch_of(make_pair(2, 1, accept="fast_logits"))
    contexts = " ".join(launch.command()).removeprefix("mpirun --allow-run-as-root --bind-to none ").split(" : ")
    assert contexts == [f"-n 1 {' '.join(argv)}" for argv in launch.ranks]
    assert launch.nodes == (0, 0, 0, 0)


def test_ranks_of_several_nodes_start_on_their_hosts_with_their_environment():
    _, launch = launch_of(make_pair(2, 1, "next node"))
    assert launch.nodes == (0, 1, 0, 0)
    contexts = " ".join(launch.command(hosts=("one", "two"))).split(" : ")
    assert [context.partition("--host ")[2].split()[0] for context in contexts] == ["one", "two", "one", "one"]
    for context in contexts:
        for name in launch.environment:
            assert f"-x {name} " in context


def test_the_shell_line_keeps_every_word():
    placement, _ = plan_placement(make_pair(1, 1))
    launch = plan_launch(placement, "/a b:c,d/it's", SERVE, requests=8)
    words = shlex.split(launch.shell_line())
    count = len(launch.environment)
    assert tuple(words[count:]) == launch.command()
    assert dict(word.split("=", 1) for word in words[:count]) == launch.environment


@pytest.mark.parametrize(("requests", "threads"), [(1, 6), (8, 20), (64, 132), (4096, 1024)])
def test_every_request_has_a_thread_for_each_engine_and_a_few_are_spare(requests, threads):
    assert python_backend_threads(requests) == threads
