"""Releases between the recorded ones: container facts of their own, everything else named as borrowed."""

from __future__ import annotations

import pytest

from trt_spec.errors import SpecError
from trt_spec.plan.toolchain import judge_derived, load_profile, resolve_profile
from trt_spec.plan.toolchain.containers import containers_with, find_container, load_containers


@pytest.mark.parametrize(
    ("version", "container", "tensorrt", "flags", "dialect"),
    [
        ("0.17.0.post1", "25.02", "10.8.0.43", "0.17.0", "0.17"),
        ("0.18.0", "25.03", "10.9.0.34", "0.17.0", "0.17"),
        ("0.21.0", "25.08", "10.11.0.33", "0.18.2", "0.17"),
        ("1.0.0", "25.10", "10.11.0.33", "1.2.1", "0.17"),
        ("1.1.0", "26.02", "10.13.3.9", "1.2.1", "0.17"),
        ("1.2.0", "26.03", "10.14.1.48", "1.2.1", "1.3.0rc3"),
    ],
)
def test_a_release_in_between(version, container, tensorrt, flags, dialect):
    with pytest.raises(SpecError, match="is not recorded"):
        resolve_profile(version)
    profile = resolve_profile(version, accept_derived=True)
    assert (profile.version, profile.triton, profile.tensorrt, profile.dialect) == (
        version,
        container,
        tensorrt,
        dialect,
    )
    assert profile.flags == load_profile(flags).flags
    assert f"borrowed from {flags}" in profile.flags_trust
    (finding,) = judge_derived(profile)
    assert (
        finding.severity == "warn"
        and f"flags of trtllm-build, their choices and defaults ({flags}'s)" in finding.message
    )


@pytest.mark.parametrize("version", ["0.17.0", "0.18.2", "1.2.1"])
def test_a_recorded_release_borrows_nothing(version):
    assert resolve_profile(version, accept_derived=True) is load_profile(version)
    assert judge_derived(load_profile(version)) == ()


@pytest.mark.parametrize(
    ("version", "words"),
    [("0.16.0", "too old"), ("1.3.0rc21", "removed in"), ("1.3.0rc3", "is not recorded"), ("x", "no")],
)
def test_what_is_not_in_between_stays_refused(version, words):
    with pytest.raises(SpecError, match=words):
        resolve_profile(version, accept_derived=True)


def test_a_release_without_a_container_is_refused():
    with pytest.raises(SpecError, match=r"0\.18\.1 has no recorded container"):
        resolve_profile("0.18.1", accept_derived=True)


def test_the_matrix_agrees_with_the_profiles():
    assert len(load_containers()) == 28
    for version in ("0.17.0", "0.18.2", "1.2.1"):
        profile = load_profile(version)
        (newest, *_) = containers_with(version)
        assert (newest.container, newest.tensorrt, newest.driver) == (
            profile.container,
            profile.tensorrt,
            profile.driver,
        )
    assert find_container("24.05-trtllm-python-py3").tensorrt_llm == "0.9.0"
    assert find_container("nothing:latest") is None
