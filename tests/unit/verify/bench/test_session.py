"""A bench against the fake Triton of tests/unit/verify."""

import contextlib

import pytest

from trt_spec.errors import SpecError
from trt_spec.spec.load import load_spec
from trt_spec.verify.bench.plan import resolve_bench
from trt_spec.verify.bench.regression import load_report
from trt_spec.verify.bench.render import write_bench
from trt_spec.verify.bench.session import Address, Bench, System
from trt_spec.verify.bench.settings import PRIMARY, Setting


@pytest.fixture
def make_bench(fake_triton, write_spec, prompts_file):
    """make_bench(*sweeps, start=) -> a bench of the fake, and the list of its progress."""

    def make(*sweeps, other_start=None, budget_s=None):
        spec = load_spec(write_spec())
        options, conditions = resolve_bench(
            spec, sweeps, quick=True, prompts_path=prompts_file, command="trtspec bench", budget_s=budget_s
        )

        @contextlib.contextmanager
        def start():
            yield Address(fake_triton.url)

        said = []
        systems = [System(PRIMARY, start), *(System(name, other_start or start) for name in options.sweeps.systems)]
        return Bench(options, systems, conditions, said.append), said

    return make


def test_every_setting_is_measured_with_its_own_draft_length(make_bench, fake_triton):
    bench, said = make_bench("draft_len=0,2", "concurrency=2")
    bench.run()
    report = bench.report
    assert not report.interrupted
    assert {point.setting.num_draft_tokens for point in report.points} == {0, 2, 4}
    assert all(point.blocks == 5 and point.load.failed == 0 for point in report.points)
    asked = [inputs.get("num_draft_tokens", [None])[0] for model, inputs in fake_triton.requests if model == "ensemble"]
    assert {0, 2, 4} <= set(asked)
    assert any("2 drafted, 1 at once" in line for line in said)


def test_what_the_budget_leaves_no_time_for_is_left_out_and_said(make_bench):
    bench, said = make_bench("draft_len=0,1,2", "draft=int4", budget_s=1e-9)
    bench.run()
    report = bench.report
    measured = {(point.setting.system, point.setting.num_draft_tokens) for point in report.points}
    assert measured == {(PRIMARY, 0), (PRIMARY, 4), ("int4", 0), ("int4", 4)}
    (note,) = [note for note in report.notes if "not measured" in note]
    assert note == "2 of 6 settings were not measured: 1 drafted, 1 at once; 2 drafted, 1 at once."
    assert "out of time: 2 settings of this block are left out" in said


def test_temperature_and_prompts_reach_the_server(make_bench, fake_triton):
    bench, _ = make_bench("temperature=0.5")
    bench.run()
    sent = [inputs for model, inputs in fake_triton.requests if model == "ensemble"]
    assert 0.5 in {float(inputs["temperature"][0]) for inputs in sent if "temperature" in inputs}
    assert {inputs["text_input"][0].decode() for inputs in sent} == {"first", "둘 🙂", "third one"}


def test_ctrl_c_leaves_a_valid_partial_report(make_bench, tmp_path):
    @contextlib.contextmanager
    def interrupted():
        raise KeyboardInterrupt
        yield

    bench, _ = make_bench("draft_len=2", "draft=int4", other_start=interrupted)
    bench.run()
    report = bench.report
    assert report.interrupted
    assert "Ended early" in report.verdict
    assert {point.setting.system for point in report.points} == {PRIMARY}
    assert any("settings were not measured" in note for note in report.notes)
    write_bench(report, tmp_path)
    assert load_report(tmp_path / "bench.json").interrupted


def test_ctrl_c_before_the_first_answer_leaves_one_too(make_bench, tmp_path, monkeypatch):
    def interrupt(*_args, **_more):
        raise KeyboardInterrupt

    bench, _ = make_bench("draft_len=2")
    monkeypatch.setattr("trt_spec.verify.bench.session.run_blocks", interrupt)
    bench.run()
    assert bench.report.points == ()
    write_bench(bench.report, tmp_path)
    assert load_report(tmp_path / "bench.json").points == ()


def test_refused_prompts_are_counted_not_dropped(make_bench, fake_triton):
    bench, _ = make_bench("draft_len=2")
    fake_triton.behaviour.refuse = "third"
    bench.run()
    point = next(p for p in bench.report.points if p.setting == Setting(num_draft_tokens=2))
    assert (point.load.requests, point.load.answered, point.load.failed) == (30, 20, 10)
    assert any("not answered" in note for note in bench.report.notes)


@pytest.mark.parametrize("mode", ["none", "medusa"])
def test_a_spec_whose_draft_length_no_request_sets_has_nothing_to_sweep(write_spec, mode):
    spec = load_spec(write_spec())
    none = spec.model_copy(update={"speculation": spec.speculation.model_copy(update={"mode": mode})})
    with pytest.raises(SpecError, match="nothing to sweep"):
        resolve_bench(none, (), quick=True, prompts_path=None, command="")
