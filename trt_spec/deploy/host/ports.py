"""Addresses and ports, checked before a server is started on them."""

from __future__ import annotations

import errno
import socket
from collections.abc import Mapping

from trt_spec.deploy.host.listeners import find_listener
from trt_spec.errors import EnvironmentMissing, SpecError
from trt_spec.spec.model import Serve


def resolve_address(host: str) -> str:
    """Return the IPv4 address to bind for a host name or address. Raises SpecError where there is none."""
    try:
        found = socket.getaddrinfo(host, None, socket.AF_INET, socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise SpecError(
            f"serve.host (--host) is {host!r}, which is no IPv4 address or known host name.",
            remedy="Use 127.0.0.1 for this machine only, or 0.0.0.0 for all of its addresses.",
        ) from error
    return str(found[0][4][0])


def check_ports(address: str, ports: Mapping[str, int], remedy: str = "") -> None:
    """Raise unless every port can be bound on ``address``; ``ports`` are those of a spec's ``serve``, by name.

    SpecError for one port given twice and an address that is not this machine's, EnvironmentMissing for a port in use.
    """
    _check_distinct(ports)
    for name, port in ports.items():
        try:
            _try_bind(address, port)
        except OSError as error:
            raise _explain(error, address, _field(name), port, remedy) from error


def _check_distinct(ports: Mapping[str, int]) -> None:
    fields: dict[int, str] = {}
    for name, port in ports.items():
        field = _field(name)
        if port in fields:
            raise SpecError(
                f"serve.{field} and serve.{fields[port]} are both {port}, expected different ports.",
                remedy=f"Change one in the spec, or give {_flag(field)}.",
            )
        fields[port] = field


def _try_bind(address: str, port: int) -> None:
    """Like Triton's own sockets: connections of a previous server that are only fading away do not block the port."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        server.bind((address, port))
        server.listen(1)


def _explain(error: OSError, address: str, field: str, port: int, remedy: str) -> SpecError | EnvironmentMissing:
    if error.errno == errno.EADDRNOTAVAIL:
        return SpecError(
            f"serve.host (--host) resolves to {address}, which is no address of this machine.",
            remedy="Use 127.0.0.1 for this machine only, or 0.0.0.0 for all of its addresses.",
        )
    found = _describe_use(port) if error.errno == errno.EADDRINUSE else f"cannot be bound ({error.strerror})"
    return EnvironmentMissing(
        f"Port {port} on {address} (serve.{field}) {found}.",
        remedy=remedy or f"Stop what listens there, or choose another port with {_flag(field)} or serve.{field}.",
    )


def _describe_use(port: int) -> str:
    owner = find_listener(port)
    return "is already in use" + ("" if owner is None else f" by process {owner[0]} ({owner[1]})")


def _field(name: str) -> str:
    return f"{name}_port"


def _flag(field: str) -> str:
    return f"--{field.replace('_', '-')}"


def find_free_ports(address: str = "127.0.0.1") -> dict[str, int]:
    """Return ports that are free now, as fields of a spec's ``serve``; another program may take one at any moment."""
    sockets = {_field(name): socket.create_server((address, 0)) for name in Serve().ports}
    try:
        return {field: int(held.getsockname()[1]) for field, held in sockets.items()}
    finally:
        for held in sockets.values():
            held.close()
