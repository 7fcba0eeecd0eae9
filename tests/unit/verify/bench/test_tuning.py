"""Measured values written into the text of a spec."""

import shutil
import subprocess

import pytest
import yaml

from trt_spec.errors import StepFailed
from trt_spec.plan.priors import given_acceptance
from trt_spec.spec.load import load_spec
from trt_spec.verify.bench.settings import Sweeps
from trt_spec.verify.bench.tuning import edit_spec, render_patch, tuning_of

VALUES = {"max_draft_len": 3, "acceptance": 0.75}
BLOCK = """\
name: x
speculation:
  # how far
  max_draft_len: 6   # most
  adaptive: true

limits: {max_batch_size: 8}
"""


def test_the_longest_recommended_length_and_the_measured_alpha(make_report):
    assert tuning_of(make_report()) == {"max_draft_len": 3, "acceptance": 0.75}


def test_no_measured_acceptance_is_an_error(make_report):
    with pytest.raises(StepFailed, match="No acceptance was measured"):
        tuning_of(make_report(sweeps=Sweeps(temperature=(1.0,)), points=()))


@pytest.mark.parametrize(
    "text",
    [
        BLOCK,
        BLOCK.replace("  max_draft_len: 6   # most\n", ""),
        "name: x\nspeculation: {max_draft_len: 6, adaptive: true}\n",
        "name: x\nspeculation: {adaptive: true}  # {}\n",
        "name: x",
        "name: x\nspeculation:\n    acceptance: 0.1\n    max_draft_len: 6\n",
        "speculation:\n\n  max_draft_len: 6\n# end\nname: x\n",
    ],
)
def test_values_are_set_and_all_else_stays(text):
    edited = edit_spec(text, VALUES)
    before, after = yaml.safe_load(text), yaml.safe_load(edited)
    assert after == {**before, "speculation": {**before.get("speculation", {}), **VALUES}}
    assert [line for line in edited.splitlines() if "#" in line] or "#" not in text


def test_comments_stay():
    assert "  # how far\n" in edit_spec(BLOCK, VALUES)
    assert "  max_draft_len: 3   # most\n" in edit_spec(BLOCK, VALUES)


def test_a_layout_that_cannot_be_edited_is_told_with_the_values():
    with pytest.raises(StepFailed, match=r"max_draft_len: 3, acceptance: 0\.75"):
        edit_spec("{name: x, speculation: {max_draft_len: 6}}", VALUES)


def test_plan_takes_the_acceptance_of_the_edited_spec(write_spec):
    path = write_spec()
    path.write_text(edit_spec(path.read_text(), VALUES))
    spec = load_spec(path)
    assert (spec.speculation.max_draft_len, spec.speculation.acceptance) == (3, 0.75)
    assert given_acceptance(spec.speculation.acceptance, None).origin == "spec"


@pytest.mark.skipif(shutil.which("git") is None, reason="git applies the patch")
def test_the_patch_applies(tmp_path):
    file = tmp_path / "x.yaml"
    file.write_text(BLOCK)
    patch = render_patch(BLOCK, edit_spec(BLOCK, VALUES), "x.yaml")
    subprocess.run(["git", "apply", "-p0", "-"], input=patch.encode(), cwd=tmp_path, check=True)
    assert file.read_text() == edit_spec(BLOCK, VALUES)
    assert render_patch(BLOCK, BLOCK, "x.yaml") == ""
