"""The launch of Triton on a GPU host, by placement."""

from pathlib import Path

from trt_spec.plan.launch_argv import launch_argv
from trt_spec.plan.placement import plan_placement

PRESET = "llama-3.1-405b-h200x4"
START = ("python3", "/app/scripts/launch_triton_server.py", "--model_repo", "/r", "--tensorrt_llm_model_name")
PORTS = ("--http_port", "8000", "--grpc_port", "8001", "--metrics_port", "8002")


def launch(planned) -> tuple[str, ...]:
    placement, _ = plan_placement(planned.spec)
    return launch_argv(placement, planned.profile, Path("/r"), planned.spec.serve)


def test_two_engines_are_spawned_by_the_orchestrator(plan_preset):
    names = "tensorrt_llm,tensorrt_llm_draft"
    assert launch(plan_preset(PRESET)) == (*START, names, "--multi-model", "--world_size", "1", *PORTS)


def test_fast_logits_need_all_ranks_at_once(plan_preset):
    """World size: the orchestrator's rank, one of the draft, four of the target."""
    planned = plan_preset(PRESET, changes={"speculation": {"accept": "fast_logits"}})
    mode = ("--multi-model", "--disable-spawn-processes", "--world_size", "6")
    assert launch(planned) == (*START, "tensorrt_llm,tensorrt_llm_draft", *mode, *PORTS)


def test_one_engine_has_a_leader(plan_preset):
    planned = plan_preset(PRESET, changes={"draft": None, "speculation": {"mode": "none"}})
    assert launch(planned) == (*START, "tensorrt_llm", "--world_size", "4", *PORTS)


def test_ports_are_those_of_the_spec(plan_preset):
    planned = plan_preset(PRESET, changes={"serve": {"http_port": 9000, "grpc_port": 9001, "metrics_port": 9002}})
    assert launch(planned)[-6:] == ("--http_port", "9000", "--grpc_port", "9001", "--metrics_port", "9002")
