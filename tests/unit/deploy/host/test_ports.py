from __future__ import annotations

import socket

import pytest

from trt_spec.deploy.host.ports import check_ports, resolve_address
from trt_spec.errors import EnvironmentMissing, SpecError

LOOPBACK = "127.0.0.1"


@pytest.mark.parametrize("bound", [LOOPBACK, "0.0.0.0"])
def test_a_port_in_use_is_named_with_its_field_and_flag(bound: str) -> None:
    with socket.create_server((bound, 0)) as server:
        port = server.getsockname()[1]
        with pytest.raises(EnvironmentMissing, match=rf"Port {port} .*serve\.grpc_port.*--grpc-port") as error:
            check_ports(LOOPBACK, {"grpc": port})
        assert error.value.exit_code == 3
        with pytest.raises(EnvironmentMissing, match="do this"):
            check_ports(LOOPBACK, {"grpc": port}, remedy="do this")
    check_ports(LOOPBACK, {"grpc": port})


def test_a_port_with_a_fading_connection_is_free() -> None:
    with socket.create_server((LOOPBACK, 0)) as server:
        port = server.getsockname()[1]
        with socket.create_connection((LOOPBACK, port)):
            server.accept()[0].close()  # closes first, so its end lingers
    check_ports(LOOPBACK, {"http": port})


def test_one_port_twice() -> None:
    with pytest.raises(SpecError, match=r"serve\.metrics_port and serve\.http_port are both 8000"):
        check_ports(LOOPBACK, {"http": 8000, "grpc": 8001, "metrics": 8000})


def test_an_address_of_another_machine() -> None:
    with pytest.raises(SpecError, match=r"192\.0\.2\.1, which is no address of this machine"):
        check_ports("192.0.2.1", {"http": 8000})


def test_addresses() -> None:
    assert resolve_address("127.0.0.1") == "127.0.0.1"
    assert resolve_address("localhost") == "127.0.0.1"
    assert resolve_address("0.0.0.0") == "0.0.0.0"
    for wrong in ("::1", "no such host", "a" * 300):
        with pytest.raises(SpecError, match=r"serve\.host"):
            resolve_address(wrong)
