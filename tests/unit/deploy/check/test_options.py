import json

import pytest

from trt_spec.deploy.check.options import CheckOptions, complete_gpus, parse_gpus
from trt_spec.deploy.check.run import inspect_engine, inspect_repository
from trt_spec.errors import SpecError
from trt_spec.plan.manifest import render_manifest


@pytest.mark.parametrize(
    ("text", "expected"),
    [("8", (8, None)), ("0", (0, None)), ("H200", (None, "9.0")), ("8xH200", (8, "9.0")), ("1xL40S", (1, "8.9"))],
)
def test_gpus_by_number_model_or_both(text, expected):
    assert parse_gpus(text) == expected


@pytest.mark.parametrize("text", ["", "-1", "8x", "xH200", "H900", "generic", "8 H200", "8xH200x2", "9" * 7, "٣"])
def test_what_are_no_gpus(text):
    with pytest.raises(SpecError, match="no GPUs that are known") as caught:
        parse_gpus(text)
    assert "8xH200" in caught.value.remedy


@pytest.fixture
def workspace(tmp_path, ours, gpu_manifest):
    """A built workspace of an H200 spec; the target's engine was built on a GPU of SM 8.0."""
    repository = ours()
    root = tmp_path / "workspace"
    root.mkdir()
    repository.engines.rename(root / "engines")
    repository.root.rename(root / "repository")
    for role, model in (("target", "tensorrt_llm"), ("draft", "tensorrt_llm_draft")):
        file = root / "repository" / model / "config.pbtxt"
        file.write_text(file.read_text().replace(str(repository.engines / role), str(root / "engines" / role)))
    (root / "manifest.json").write_text(render_manifest(gpu_manifest()))
    engine = root / "engines" / "target"
    files = {path.name: {"bytes": path.stat().st_size} for path in engine.iterdir()}
    record = {"files": files, "gpus": [{"index": 0, "compute_capability": "8.0"}]}
    (engine / "manifest.json").write_text(json.dumps(record))
    return root


def test_the_architecture_is_that_of_the_specs_gpu_in_a_workspace(workspace):
    found = [row for row in inspect_repository(workspace / "repository", CheckOptions()).findings if "gpu" in row.code]
    assert [row.code for row in found] == ["engine-gpu"]
    assert "the engine is sm80, the GPUs are sm90" in found[0].what
    engine = workspace / "engines" / "target"
    assert [row.code for row in inspect_engine(engine, CheckOptions(), lambda *_: None).findings] == ["engine-gpu"]


def test_what_is_said_of_the_gpus_wins(workspace):
    options = CheckOptions(compute_capability="8.0")
    assert "engine-gpu" not in {row.code for row in inspect_repository(workspace / "repository", options).findings}


@pytest.mark.parametrize("gpu", ["generic", None])
def test_a_workspace_that_names_no_architecture(workspace, gpu_manifest, gpu):
    text = render_manifest(gpu_manifest(hardware={"gpu": gpu})) if gpu else "{}"
    (workspace / "manifest.json").write_text(text)
    assert complete_gpus(CheckOptions(), workspace / "repository").compute_capability is None
