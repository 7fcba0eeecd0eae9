"""Two reports compared."""

from dataclasses import replace

import pytest

from trt_spec.errors import SpecError
from trt_spec.verify.acceptance import Round, measure_acceptance
from trt_spec.verify.bench.regression import alpha_differs, compare_reports, load_report
from trt_spec.verify.bench.settings import Sweeps
from trt_spec.verify.results import to_json


def test_the_same_report_has_no_regression(make_report):
    report = make_report()
    comparison = compare_reports(report, report)
    assert len(comparison.changes) == len(report.points)
    assert comparison.regressions == ()
    assert comparison.differences == ()


def test_a_slower_one_has_and_a_faster_one_has_not(make_report):
    report, slower = make_report(), make_report(slower=1.2)
    found = compare_reports(report, slower)
    assert len(found.regressions) == len(report.points)
    assert found.changes[0].speed.value == pytest.approx(1 / 1.2, rel=0.02)
    assert compare_reports(slower, report).regressions == ()


def test_prompts_are_the_samples_not_blocks(make_report):
    report = make_report()
    point = report.points[0]
    more = replace(point, samples={name: values * 50 for name, values in point.samples.items()})
    longer = replace(report, points=(more,))
    assert compare_reports(longer, longer).changes[0].speed.samples == 6


def test_alpha_counts_as_a_regression_too(make_report):
    report = make_report()
    index = next(i for i, point in enumerate(report.points) if point.setting.num_draft_tokens == 4)
    point = report.points[index]
    worse = replace(point, load=replace(point.load, acceptance=measure_acceptance([Round(4, 1)] * 200)))
    other = replace(report, points=(worse,))
    (found,) = compare_reports(report, other).regressions
    assert (found.alpha_a, found.alpha_b, found.alpha_significant) == (0.75, 0.5, True)
    assert compare_reports(other, report).regressions == ()


def test_alpha_of_few_tokens_is_chance():
    a, b = measure_acceptance([Round(4, 2)] * 2), measure_acceptance([Round(4, 3)] * 2)
    assert not alpha_differs(a, b, 0.95)
    assert alpha_differs(measure_acceptance([Round(4, 2)] * 300), measure_acceptance([Round(4, 3)] * 300), 0.95)
    assert not alpha_differs(None, b, 0.95)


def test_changed_conditions_are_named(make_report):
    report = make_report()
    other = replace(report, conditions=replace(report.conditions, cpu="another", versions={"trtspec": "2"}))
    assert compare_reports(report, other).differences == ("versions", "cpu: a processor -> another")


def test_reports_without_a_common_setting_are_refused(make_report):
    with pytest.raises(SpecError, match="no setting in common"):
        compare_reports(make_report(), replace(make_report(sweeps=Sweeps((2,))), points=()))


def test_a_report_survives_its_file(make_report, tmp_path):
    report = make_report()
    path = tmp_path / "bench.json"
    path.write_text(to_json(report))
    assert load_report(path) == report


@pytest.mark.parametrize(
    ("text", "message"),
    [("{}", "is no report"), ("not json", "is no report"), (None, "No such file")],
)
def test_what_is_no_report_is_told(tmp_path, text, message):
    path = tmp_path / "bench.json"
    if text is not None:
        path.write_text(text)
    with pytest.raises(SpecError, match=message):
        load_report(path)


def test_another_schema_version_is_refused(make_report, tmp_path):
    path = tmp_path / "bench.json"
    path.write_text(to_json(make_report(schema_version=99)))
    with pytest.raises(SpecError, match="schema version 99"):
        load_report(path)
