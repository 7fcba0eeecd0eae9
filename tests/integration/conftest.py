"""Ports for servers of the tests."""

from __future__ import annotations

import pytest

from trt_spec.deploy.host.ports import find_free_ports


@pytest.fixture
def free_ports() -> dict[str, int]:
    """Three ports of this machine that nobody listens on, by the name of their spec field."""
    return find_free_ports()
