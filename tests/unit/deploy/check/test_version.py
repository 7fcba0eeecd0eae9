import json
from dataclasses import replace

import pytest

from trt_spec.deploy.check.options import CheckOptions
from trt_spec.deploy.check.run import inspect_repository
from trt_spec.deploy.dialect import RECORDED_VERSIONS
from trt_spec.errors import SpecError


@pytest.mark.parametrize("version", RECORDED_VERSIONS)
def test_the_version_is_told_by_tensors_and_parameters(nvidia, version):
    reason = inspect_repository(nvidia(version).root, CheckOptions()).version_reason
    assert "every tensor and parameter is that of its templates" in reason
    assert version in reason.partition(":")[0]


def test_a_version_between_the_recorded_ones_is_said_to_be_close(nvidia):
    repository = nvidia("0.16.0")
    config = repository.config("tensorrt_llm")
    repository.change("tensorrt_llm", inputs=config.inputs[:-1])
    reason = inspect_repository(repository.root, CheckOptions()).version_reason
    assert reason.startswith("0.16.0, the closest of the recorded ones: 1 names differ")
    assert "--tensorrt-llm" in reason


def test_an_engine_says_which_version_it_is_for(nvidia, tmp_path):
    repository = nvidia("0.19.0")
    engine = tmp_path / "engines" / "target"
    engine.mkdir(parents=True)
    (engine / "config.json").write_text(json.dumps({"version": "0.18.2"}))
    options = CheckOptions(mounts=(("/engines", tmp_path / "engines"),))
    assert inspect_repository(repository.root, options).version_reason.startswith("0.18.2, the engine of tensorrt_llm")
    (engine / "config.json").write_text(json.dumps({"version": "0.5.0"}))  # no templates of that one
    assert inspect_repository(repository.root, options).version_reason.startswith("0.19.0")


def test_what_is_stated_wins_and_must_be_known(nvidia):
    repository = nvidia("0.19.0")
    assert (
        inspect_repository(repository.root, CheckOptions(tensorrt_llm="0.16.0")).version_reason == "0.16.0, as stated"
    )
    with pytest.raises(SpecError, match=r"9\.9"):
        inspect_repository(repository.root, CheckOptions(tensorrt_llm="9.9"))


def test_nothing_to_tell_by(tmp_path):
    (tmp_path / "m" / "1").mkdir(parents=True)
    (tmp_path / "m" / "config.pbtxt").write_text('name: "m"\nbackend: "identity"\n')
    assert "no model tells" in inspect_repository(tmp_path, CheckOptions()).version_reason


def test_paths_of_the_container_are_found_behind_mounts(tmp_path):
    options = CheckOptions(mounts=(("/models", tmp_path / "all"), ("/models/engines/", tmp_path / "engines")))
    assert options.locate("/models/engines/target") == tmp_path / "engines" / "target"
    assert options.locate("/models/x") == tmp_path / "all" / "x"
    assert options.locate("/modelsx") is not None
    assert str(options.locate("/modelsx")) == "/modelsx"
    assert options.locate("relative") is None
    assert replace(options, mounts=()).locate("/a\0b") is None
