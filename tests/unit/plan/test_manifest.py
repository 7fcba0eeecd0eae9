"""manifest.json as it is read: an engine that is missing or that no engine can be is named."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from trt_spec.errors import SpecError
from trt_spec.plan.manifest import EngineEntry, Manifest, load_manifest, render_manifest, resolve_deployment_id
from trt_spec.plan.workspace import Workspace
from trt_spec.spec.model import Verify

ENTRY = EngineEntry(fingerprint="f", source="s", vocab_size=10, max_seq_len=20, max_draft_len=4, kv_cache_tokens=64)


@pytest.fixture
def place(tmp_path: Path, make_spec: Any) -> Workspace:
    place = Workspace(tmp_path)
    manifest = Manifest(trtspec="0", spec=make_spec(), engines={"target": ENTRY, "draft": ENTRY})
    place.manifest.write_text(render_manifest(manifest), encoding="utf-8")
    return place


def test_it_reloads(place: Workspace) -> None:
    assert render_manifest(load_manifest(place)) == place.manifest.read_text(encoding="utf-8")


def test_thresholds_do_not_make_another_deployment(place: Workspace) -> None:
    manifest = load_manifest(place)
    stricter = manifest.spec.model_copy(update={"verify": Verify(min_speedup=2.0)})
    shorter = manifest.spec.model_copy(update={"speculation": manifest.spec.speculation.model_copy(
        update={"max_draft_len": 3})})  # fmt: skip
    ids = [
        resolve_deployment_id(manifest.model_copy(update={"spec": spec})) for spec in (manifest.spec, stricter, shorter)
    ]
    assert ids[0] == ids[1] != ids[2]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("kv_cache_tokens", 0),
        ("kv_cache_tokens", -1),
        ("max_seq_len", 0),
        ("vocab_size", -5),
        ("vocab_size", 0),
        ("max_draft_len", -1),
    ],
)
def test_a_count_that_no_engine_has(place: Workspace, field: str, value: int) -> None:
    document = json.loads(place.manifest.read_text(encoding="utf-8"))
    document["engines"]["draft"][field] = value
    place.manifest.write_text(json.dumps(document), encoding="utf-8")
    with pytest.raises(SpecError, match=rf"engines\.draft\.{field}: Input should be greater than or equal to"):
        load_manifest(place)


@pytest.mark.parametrize(
    ("roles", "found"), [((), "none"), (("target",), "target"), (("target", "draft", "third"), "third and target and")]
)
def test_the_engines_are_those_of_the_spec(place: Workspace, roles: tuple[str, ...], found: str) -> None:
    document = json.loads(place.manifest.read_text(encoding="utf-8"))
    document["engines"] = dict.fromkeys(roles, document["engines"]["target"])
    place.manifest.write_text(json.dumps(document), encoding="utf-8")
    with pytest.raises(SpecError, match=rf"records engines of {found}.* its spec asks for target and draft"):
        load_manifest(place)


@pytest.mark.parametrize("text", ["", "{", "[" * 100_000, "\0"])
def test_what_is_no_json(place: Workspace, text: str) -> None:
    place.manifest.write_text(text, encoding="utf-8")
    with pytest.raises(SpecError, match=re.escape("of this version of trtspec (Invalid JSON")):
        load_manifest(place)
