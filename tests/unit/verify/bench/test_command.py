"""The command's own part: usage, comparison, exit codes."""

import json

import pytest
from click.testing import CliRunner

from trt_spec.cli.main import main
from trt_spec.verify.results import to_json


def bench(*words):
    return CliRunner().invoke(main, ["bench", *map(str, words)])


@pytest.fixture
def reports(tmp_path, make_report):
    for name, slower in (("a", 1.0), ("b", 1.3)):
        (tmp_path / f"{name}.json").write_text(to_json(make_report(slower)))
    return tmp_path / "a.json", tmp_path / "b.json"


def test_a_regression_exits_with_4(reports):
    a, b = reports
    result = bench("--compare", a, b)
    assert result.exit_code == 4
    assert "became slower or accept less" in result.output
    assert bench("--compare", b, a).exit_code == 0
    assert bench("--compare", a, a).exit_code == 0


def test_a_comparison_as_json(reports):
    result = bench("--compare", *reports, "--json")
    assert result.exit_code == 4
    changes = json.loads(result.stdout)["changes"]
    assert all(change["speed"]["significant"] for change in changes)


def test_without_a_spec_nothing_is_measured():
    assert bench().exit_code == 2


def test_a_wrong_sweep_is_told_before_anything_is_built(write_spec, tmp_path):
    result = bench(write_spec(), "-o", tmp_path / "work", "--sweep", "draft_len=99")
    assert result.exit_code == 2
    assert "99 is beyond" in result.output
    assert not (tmp_path / "work").exists()


def test_a_wrong_draft_is_told_before_anything_is_built(write_spec, tmp_path):
    result = bench(write_spec(), "-o", tmp_path / "work", "--sweep", "draft=int3")
    assert result.exit_code == 2
    assert "int3" in result.output
    assert not (tmp_path / "work").exists()
