from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trt_spec.deploy.check.rules.medusa import read_choices
from trt_spec.deploy.dialect import RECORDED_VERSIONS
from trt_spec.deploy.engine_parameters import render_choices
from trt_spec.spec.medusa import MC_SIM_7B_63

Make = Callable[..., Any]
TREE = ((0,), (0, 0), (1,))


@pytest.fixture
def heads(ours: Make) -> Make:
    """heads(version) -> the repository of a target with three Medusa heads and a tree of three nodes."""

    def write(version: str = "1.2.1") -> Any:
        repository = ours(version, draft=None, max_draft_len=0, medusa_choices=TREE)
        repository.set_engine("target", "build_config", max_draft_len=3, speculative_decoding_mode=4)
        repository.set_engine("target", "pretrained_config", max_draft_len=3, num_medusa_heads=3)
        return repository

    return write


@pytest.mark.parametrize("version", RECORDED_VERSIONS)
def test_what_deploy_writes_is_sound_in_every_version(heads: Make, version: str) -> None:
    assert heads(version).findings() == []


def test_a_mode_that_the_engine_does_not_have(heads: Make) -> None:
    repository = heads()
    repository.set_engine("target", "build_config", speculative_decoding_mode=1)
    finding = repository.find("medusa-engine")
    assert finding.severity == "error" and '"medusa"' in repository.line(finding)


@pytest.mark.parametrize("mode", [4, "MEDUSA", "medusa"])
def test_an_engine_with_heads_that_the_model_does_not_mention(heads: Make, mode: object) -> None:
    repository = heads()
    repository.set_engine("target", "build_config", speculative_decoding_mode=mode)
    repository.set("tensorrt_llm", decoding_mode="top_k_top_p")
    assert repository.find("medusa-mode").severity == "warning"
    assert "does not draft" in repository.findings("engine-drafts")[0].what


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("[[0], [0, 0]]", "expected a tree such as"),
        ("{0}, {a}", "expected a tree such as"),
        ("{}", "expected a tree such as"),
        ("{0, 0}, {1}", "without its parent [0]"),
        ("{0}, {0}", "twice"),
        ("{0}, {16}", "from 0 to 15"),
        ("{0}, {0, 0}, {0, 0, 0}, {0, 0, 0, 0}", "4 guesses deep, its engine has num_medusa_heads 3"),
        ("{0}, {1}, {2}, {3}", "4 nodes, its engine has max_draft_len 3"),
        ("", "the default tree (medusa_choices is empty) is 4 guesses deep"),
    ],
)
def test_trees_that_do_not_load_or_load_as_another(heads: Make, value: str, words: str) -> None:
    repository = heads()
    repository.set("tensorrt_llm", medusa_choices=value)
    found = repository.findings("medusa-choices")
    assert found and found[0].severity == "error"
    assert any(words in finding.what for finding in found)


def test_the_orchestrator_must_know_who_drafts(heads: Make, ours: Make) -> None:
    repository = heads()
    repository.set("tensorrt_llm_bls", engine_drafts="no")
    assert "expected true or false" in repository.findings("orchestrator-parameter")[0].what
    repository.set("tensorrt_llm_bls", engine_drafts="false")
    finding = repository.find("engine-drafts")
    assert (finding.severity, finding.file) == ("warning", "tensorrt_llm_bls/config.pbtxt")


def test_a_pair_says_nothing_of_medusa(ours: Make) -> None:
    assert ours().findings() == []


@given(st.lists(st.lists(st.integers(0, 15), min_size=1, max_size=6).map(tuple), min_size=1, max_size=64).map(tuple))
def test_what_is_written_is_read_again(choices: tuple[tuple[int, ...], ...]) -> None:
    assert read_choices(render_choices(choices)) == choices


def test_the_form_is_that_of_nvidias_page() -> None:
    assert render_choices(((0, 0, 0), (0, 1))) == "{0, 0, 0}, {0, 1}"
    assert read_choices("{1,5},{1,2,3,}, ") == ((1, 5), (1, 2, 3))  # NVIDIA's own test of its reader
    assert read_choices("{" * 200_000) is None
    assert len(render_choices(MC_SIM_7B_63)) < 1000
