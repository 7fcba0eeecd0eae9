"""Which outputs of an engine build a changed spec still needs, without network: the presets' models are known."""

from pathlib import Path

import pytest

from trt_spec.build.inventory import list_outputs
from trt_spec.build.planned import load_planned_steps
from trt_spec.build.store import Job, run_step
from trt_spec.plan.workspace import Workspace
from trt_spec.spec.load import load_spec

PRESET = Path(__file__).parents[3] / "build" / "llama-3.1-70b-h200x1.yaml"


@pytest.fixture
def load(tmp_path, monkeypatch):
    """load(old, new) -> the preset's spec with a text replaced."""
    monkeypatch.setenv("TRTSPEC_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hub"))

    def load(old="", new=""):
        text = PRESET.read_text()
        assert old in text
        path = tmp_path / "spec.yaml"
        path.write_text(text.replace(old, new) if old else text)
        return load_spec(path)

    return load


@pytest.fixture
def place(tmp_path, load):
    """Finished outputs of everything but the sources, whose weights are not here."""
    workspace = Workspace(tmp_path / "work")
    for step in load_planned_steps(load(), workspace):
        if step.kind != "fetch":
            run_step(Job(step, step.outputs[0], {}, {}, "f" * 64), lambda folder: folder.mkdir(exist_ok=True) or {})
    return workspace


def outdated(place, spec):
    listed = list_outputs(place, load_planned_steps(spec, place))
    assert len(listed) == 4
    return {f"{output.kind} {output.role}" for output in listed if output.state != "current"}


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("", "", set()),
        ("max_draft_len: 10", "max_draft_len: 5", {"engine target"}),
        ("http_port: 8000", "http_port: 9000", set()),
    ],
)
def test_a_change_outdates_what_depends_on_it(load, place, old, new, expected):
    assert outdated(place, load(old, new)) == expected


def test_llmapi_plans_no_steps(load, tmp_path):
    spec = load().model_copy(update={"backend": "llmapi"})
    assert load_planned_steps(spec, Workspace(tmp_path / "work")) == ()
