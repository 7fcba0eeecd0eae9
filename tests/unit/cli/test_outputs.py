"""`trtspec build --list` and `--prune` on a workspace built from the tiny pair."""

import json

import pytest
from click.testing import CliRunner

from trt_spec.build.run import BuildOptions, run_build
from trt_spec.cli.main import main
from trt_spec.plan.workspace import Workspace
from trt_spec.spec.load import load_spec


@pytest.fixture
def place(tmp_path, monkeypatch, write_spec):
    """The built workspace of the tiny pair."""
    monkeypatch.setenv("TRTSPEC_CACHE", str(tmp_path / "cache"))
    workspace = Workspace(tmp_path / "work")
    run_build(BuildOptions(load_spec(write_spec()), workspace), lambda _text, _fraction: None)
    return workspace


@pytest.fixture
def run(place):
    return lambda *arguments: CliRunner().invoke(main, ["build", "-o", str(place.root), *map(str, arguments)])


def test_a_built_workspace_needs_all_it_has(run, place, write_spec):
    result = run(write_spec(), "--list")
    assert result.exit_code == 0, result.output
    rows = [line.split() for line in result.stdout.splitlines()]
    assert [(row[0], row[1], row[2], row[-1]) for row in rows] == [
        ("engine", role, "current", str(place.engine(role))) for role in ("target", "draft")
    ]
    fingerprint = json.loads((place.engine("draft") / "manifest.json").read_text())["fingerprint"]
    assert rows[1][3] == fingerprint[:12]
    pruned = run(write_spec(), "--prune", "--yes")
    assert (pruned.exit_code, pruned.stdout, pruned.stderr) == (0, "", "Nothing to remove.\n")


def test_the_workspace_tells_its_own_spec(run, tmp_path):
    result = run("--list", "--json")
    document = json.loads(result.stdout)
    assert document["workspace"] == str(tmp_path / "work")
    assert [output["state"] for output in document["outputs"]] == ["current", "current"]
    assert all(output["size_bytes"] > 1000 and not output["removable"] for output in document["outputs"])
    assert CliRunner().invoke(main, ["build", "--list"]).exit_code == 2
    assert CliRunner().invoke(main, ["build"]).exit_code == 2


def test_pruning_shows_then_asks_for_yes(run, place, write_spec):
    changed = write_spec(replace=("max_draft_len: 4", "max_draft_len: 3"))
    refused = run(changed, "--prune")
    assert refused.exit_code == 2
    assert str(place.engine("target")) in refused.stdout and "Add --yes." in refused.stderr
    assert str(place.engine("draft")) not in refused.stdout
    assert place.engine("target").is_dir()
    done = run(changed, "--prune", "--yes")
    assert done.exit_code == 0, done.output
    assert str(place.engine("target")) in done.stdout and done.stderr.startswith("Removed 1, ")
    assert not place.engine("target").exists() and place.engine("draft").is_dir()


@pytest.mark.parametrize(("answer", "is_removed"), [(b"n\n", False), (b"y\n", True)])
def test_a_terminal_is_asked(place, write_spec, monkeypatch, answer, is_removed):
    changed = write_spec(replace=("max_draft_len: 4", "max_draft_len: 3"))
    monkeypatch.setattr("trt_spec.cli.outputs.is_terminal", lambda: True)
    arguments = ["build", "-o", str(place.root), str(changed), "--prune"]
    result = CliRunner().invoke(main, arguments, input=answer)
    assert result.exit_code == 0, result.output
    assert place.engine("target").is_dir() is not is_removed


def test_no_workspace_to_list(write_spec, tmp_path):
    spec = write_spec()
    missing = CliRunner().invoke(main, ["build", str(spec), "--list", "-o", str(tmp_path / "none")])
    assert missing.exit_code == 2
    assert "is no workspace" in missing.stderr
    empty = tmp_path / "empty"
    empty.mkdir()
    assert "nothing is built there" in CliRunner().invoke(main, ["build", "--list", "-o", str(empty)]).stderr


def test_a_spec_that_plans_nothing_prunes_nothing(run, place, write_spec):
    llmapi = write_spec(replace=("backend: onnx", "backend: llmapi"))
    result = run(llmapi, "--prune", "--yes")
    assert result.exit_code == 2, result.output
    assert place.engine("target").is_dir()
