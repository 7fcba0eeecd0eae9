"""Engines that are not what was built."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from trt_spec.deploy.built_engines import check_built_engines
from trt_spec.errors import SpecError
from trt_spec.plan.manifest import Manifest
from trt_spec.plan.workspace import Workspace


@pytest.fixture
def place(tmp_path: Path, manifest: Manifest, record_engine: Callable[..., None]) -> Workspace:
    place = Workspace(tmp_path)
    for role, model in manifest.spec.models().items():
        place.engine(role).mkdir(parents=True)
        record_engine(place.engine(role), model.tensor_parallel, fingerprint=f"f-{role}")
    return place


@pytest.fixture
def manifest(gpu_manifest: Callable[..., Manifest]) -> Manifest:
    return gpu_manifest()


def test_what_a_build_leaves_is_sound(place: Workspace, manifest: Manifest) -> None:
    check_built_engines(manifest, place)


def test_a_folder_that_is_not_there_is_for_others_to_name(tmp_path: Path, manifest: Manifest) -> None:
    check_built_engines(manifest, Workspace(tmp_path / "nothing"))


CONFIG, RECORD, RANK = "config.json", "manifest.json", "rank1.engine"


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        (CONFIG, None, "config.json does not exist"),
        (CONFIG, "x", "config.json is not JSON"),
        (CONFIG, "[" * 100_000, "config.json is nested too deeply"),
        (RANK, None, "rank1.engine is missing (manifest 0 bytes)"),
        (RANK, "xy", "rank1.engine is too long (2 bytes, manifest 0 bytes)"),
        (RECORD, None, "manifest.json is missing or damaged"),
        (RECORD, "{}", "manifest.json is missing or damaged"),
    ],
)
def test_a_damaged_engine(place: Workspace, manifest: Manifest, name: str, text: str | None, message: str) -> None:
    file = place.engine("target") / name
    if text is None:
        file.unlink()
    else:
        file.write_text(text, encoding="utf-8")
    with pytest.raises(SpecError, match=re.escape(message)) as caught:
        check_built_engines(manifest, place)
    assert "target: " in str(caught.value) and "draft: " not in str(caught.value)
    assert "again" in str(caught.value.remedy)


def test_the_version_is_the_one_that_the_build_recorded(
    place: Workspace, manifest: Manifest, record_engine: Callable[..., None]
) -> None:
    record_engine(place.engine("draft"), version="0.17.0", fingerprint="f-draft")
    with pytest.raises(SpecError, match=r"draft: .*TensorRT-LLM 0\.17\.0, it is meant for 1\.2\.1"):
        check_built_engines(manifest, place)


def test_a_whole_engine_of_another_build(
    place: Workspace, manifest: Manifest, record_engine: Callable[..., None]
) -> None:
    record_engine(place.engine("draft"), fingerprint="f-target")
    with pytest.raises(SpecError, match=r"draft: .*engine of another build"):
        check_built_engines(manifest, place)


def test_an_edited_config_of_the_same_size(place: Workspace, manifest: Manifest) -> None:
    file = place.engine("target") / CONFIG
    config = json.loads(file.read_text(encoding="utf-8"))
    config["pretrained_config"]["mapping"]["pp_size"] = 2
    file.write_text(json.dumps(config), encoding="utf-8")
    with pytest.raises(SpecError, match=r"hash mismatch of config\.json"):
        check_built_engines(manifest, place)
