"""Plans of n-gram look-up: one engine built to verify drafts from outside, on GPUs and on a CPU."""

import json
from pathlib import Path

import pytest

from trt_spec.plan.explain import explain
from trt_spec.plan.plan import PlanOptions, make_plan
from trt_spec.plan.render import render_json
from trt_spec.plan.workspace import Workspace
from trt_spec.spec.model import Spec

CPU = {"backend": "onnx", "hardware": None}


@pytest.fixture
def plan(make_spec, make_files):
    """plan(speculation={...}, ...) -> the plan of a spec of mode ngram."""

    def make(speculation=None, measured_alpha=None, **sections):
        sections = {"draft": None, "speculation": {"mode": "ngram", **(speculation or {})}, **sections}
        spec = make_spec(**sections)
        assert isinstance(spec, Spec)
        files = {role: make_files() for role in spec.models()}
        return make_plan(spec, files, PlanOptions(Workspace(Path("/w")), measured_alpha=measured_alpha))

    return make


def test_one_engine_takes_drafts_from_outside(plan):
    planned = plan({"max_draft_len": 6})
    assert [step.id for step in planned.steps] == ["fetch-target", "convert-target", "engine-target"]
    argv = planned.steps[-1].argv
    for flag, value in (("--speculative_decoding_mode", "draft_tokens_external"), ("--max_draft_len", "6")):
        assert argv[argv.index(flag) + 1] == value
    assert (planned.engine.limits["target"].max_draft_len, planned.engine.limits["target"].max_seq_len) == (6, 1542)
    assert argv[argv.index("--use_paged_context_fmha") + 1] == "enable"  # every round resends the prefix


def test_one_engine_has_the_memory_and_the_processes(plan, make_spec, make_files):
    planned = plan()
    assert planned.engine.memory.pools.keys() == {"target"}
    assert (planned.engine.placement.mode, planned.engine.placement.world_size) == ("leader", 1)
    spec = make_spec()
    pair = make_plan(spec, dict.fromkeys(spec.models(), make_files()), PlanOptions(Workspace(Path("/w"))))
    assert planned.engine.memory.pools["target"].max_tokens > pair.engine.memory.pools["target"].max_tokens


def test_without_an_acceptance_nothing_is_predicted(plan, codes):
    planned = plan()
    assert planned.engine.speed is None
    assert codes(planned.findings)["speed-not-predicted"] == "note"
    assert planned.draft_len_by_running == (4,)
    assert json.loads(render_json(planned))["speed"] is None
    assert "no speed is predicted" in explain(planned, "speculation.draft_len_by_running").formula


@pytest.mark.parametrize("given", [{"speculation": {"acceptance": 0.6}}, {"measured_alpha": 0.6}])
def test_with_an_acceptance_drafts_cost_no_steps(plan, codes, given):
    planned = plan(**given)
    assert "speed-not-predicted" not in codes(planned.findings)
    assert planned.engine.speed.acceptance.alpha == 0.6
    assert planned.draft_len_by_running == planned.engine.speed.draft_len_by_running
    assert planned.draft_len_by_running[0] == 4  # verifying costs next to nothing at one request
    assert json.loads(render_json(planned))["draft_len_by_running"] == list(planned.draft_len_by_running)


def test_on_a_cpu(plan):
    planned = plan(**CPU)
    (step,) = planned.steps
    assert (step.id, step.params["max_draft_len"], step.params["speculative_decoding_mode"]) == ("engine-target", 4, 2)
    assert planned.draft_len_by_running == (4, 3, 3, 2, 2, 1, 1, 0)
    assert "down to 0 at 8 requests" in explain(planned, "speculation.draft_len_by_running").formula


def test_a_target_alone_takes_none(plan):
    planned = plan({"mode": "none"})
    assert planned.engine.limits["target"].max_draft_len == 0
    assert planned.draft_len_by_running == ()
    assert "--max_draft_len" not in planned.steps[-1].argv
    assert plan({"mode": "none"}, **CPU).steps[0].params["max_draft_len"] == 0


def test_float32_engines_verify_no_drafts(make_spec):
    with pytest.raises(ValueError, match="found float32"):
        make_spec(draft=None, speculation={"mode": "ngram"}, target={"dtype": "float32"})
