"""Names of specs for Kubernetes and Compose: valid, short enough for what controllers append, never two alike."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trt_spec.deploy.targets.dns_name import MAX_NAME, dns_name
from trt_spec.spec.model import NAME_PATTERN

DNS_LABEL = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")  # RFC 1035, what services ask for
SPEC_NAMES = st.from_regex(NAME_PATTERN, fullmatch=True)


@given(SPEC_NAMES)
def test_every_spec_name_gives_valid_names(name: str) -> None:
    own = dns_name(name)
    assert len(own) <= MAX_NAME
    for derived in (own, f"{own}-triton", f"{own}-models", f"{own}-0-1"):
        assert DNS_LABEL.fullmatch(derived)


@given(SPEC_NAMES, SPEC_NAMES)
def test_different_specs_have_different_names(one: str, other: str) -> None:
    assert (dns_name(one) == dns_name(other)) == (one == other)


@pytest.mark.parametrize("name", ["pair", "llama-405b-h200x4", "a", "a" * MAX_NAME])
def test_a_dns_label_is_kept(name: str) -> None:
    assert dns_name(name) == name


@pytest.mark.parametrize(
    ("name", "start"),
    [
        ("llama-3.1-405b-h200x4", "llama-3-1-405b-h200x4-"),
        ("Pair_A", "pair-a-"),
        ("405b", "t-405b-"),
        ("a" * 63, "a" * 33 + "-"),
        ("pair-", "pair-"),
        ("0._.", "t-0-"),
    ],
)
def test_other_names_are_spelled_as_labels_with_a_digest(name: str, start: str) -> None:
    assert re.fullmatch(re.escape(start) + "[0-9a-f]{6}", dns_name(name))


def test_names_that_differ_in_their_dots_alone_stay_apart() -> None:
    assert len({dns_name(name) for name in ("a.b", "a_b", "a-b", "A-b", "a..b")}) == 5
