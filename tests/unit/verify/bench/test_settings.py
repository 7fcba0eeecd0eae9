"""Which settings a bench measures."""

import pytest

from trt_spec.errors import SpecError
from trt_spec.spec.load import load_spec
from trt_spec.verify.bench.settings import PRIMARY, Setting, Sweeps, list_settings, order_settings, resolve_sweeps

KEPT_LAYERS = 2  # of the 3 of the tiny target


@pytest.fixture
def spec(write_spec):
    return load_spec(write_spec())


def test_every_load_is_measured_without_drafts_too():
    sweeps = Sweeps((0, 2, 4), (1, 8), (64,), (0.0, 1.0), ("int4",))
    for system in (PRIMARY, "int4"):
        settings = list_settings(sweeps, system, 4)
        assert {setting.plain for setting in settings} <= set(settings)


def test_another_draft_is_measured_over_prompt_lengths_alone():
    settings = list_settings(Sweeps((0, 2, 4), (1, 8), (64, 512), (1.0,), ("int4",)), "int4", 4)
    assert {(s.concurrency, s.temperature) for s in settings} == {(1, None)}
    assert {s.prompt_tokens for s in settings} == {None, 64, 512}


def test_a_setting_that_two_sweeps_share_is_measured_once():
    settings = list_settings(Sweeps((0, 4), (1,)), PRIMARY, 4, quick=True)
    assert settings[Setting(num_draft_tokens=4)] == {"draft_len", "concurrency"}


def test_temperature_zero_is_greedy():
    assert Setting(num_draft_tokens=4) in list_settings(Sweeps(temperature=(0.0,)), PRIMARY, 4)


def test_the_default_follows_the_limits_of_the_spec(spec):
    sweeps = resolve_sweeps(spec, [])
    assert sweeps.draft_len == (0, 1, 2, 3, 4)
    assert sweeps.concurrency == (1, 2, 4)
    assert sweeps.prompt_tokens == (64,)


def test_a_quantised_copy_of_the_target_is_compared_with_worse_ones(write_spec):
    spec = load_spec(write_spec())
    copy = spec.model_copy(update={"draft": spec.draft.model_copy(update={"model": "self", "quantization": "int8"})})
    assert resolve_sweeps(copy, []).draft == ("int4", f"layers:{KEPT_LAYERS}")
    assert resolve_sweeps(copy, [], quick=True).draft == (f"layers:{KEPT_LAYERS}",)
    assert resolve_sweeps(spec, []).draft == ()


def test_quick_leaves_out_odd_lengths_but_not_the_longest(write_spec):
    spec = load_spec(write_spec(replace=("max_draft_len: 4", "max_draft_len: 7")))
    assert resolve_sweeps(spec, [], quick=True).draft_len == (0, 1, 2, 4, 6, 7)


def test_named_sweeps_leave_the_others_out(spec):
    assert resolve_sweeps(spec, ["concurrency=1,3", "draft_len"]) == Sweeps((0, 1, 2, 3, 4), (1, 3))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("length=1", "there is no sweep 'length'"),
        ("draft_len=9", "9 is beyond what this spec allows, 0 to 4"),
        ("draft_len=one", "'one' is no value"),
        ("draft_len=1,1", "1 is given twice"),
        ("accept=guess", "'guess' is no value"),
        ("draft=", "'' is no value"),
        ("draft", "no values are given"),
        ("temperature=-1", "beyond what"),
        ("temperature=nan", "beyond what"),
    ],
)
def test_what_is_no_sweep_is_refused(spec, text, message):
    with pytest.raises(SpecError, match=message):
        resolve_sweeps(spec, [text])


def test_a_sweep_given_twice_is_refused(spec):
    with pytest.raises(SpecError, match="given twice"):
        resolve_sweeps(spec, ["draft_len=1", "draft_len=2"])


def test_what_every_sweep_needs_is_measured_first():
    settings = [Setting(num_draft_tokens=n, concurrency=c) for c in (1, 2) for n in (1, 0, 4, None)]
    ordered = order_settings(settings, 4)
    assert [setting.num_draft_tokens for setting in ordered] == [0, 4, 0, 4, 1, None, 1, None]
    assert [setting.concurrency for setting in ordered] == [1, 1, 2, 2, 1, 1, 2, 2]
