"""Ports for servers of the tests."""

from __future__ import annotations

import socket

import pytest


@pytest.fixture
def free_ports() -> dict[str, int]:
    """Three ports of this machine that nobody listens on, by the name of their spec field."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(3)]
    numbers = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return dict(zip(("http_port", "grpc_port", "metrics_port"), numbers, strict=True))
