"""What Docker and Triton bind: addresses. Neither takes a name (Docker's ports, Triton's --http-address)."""

from __future__ import annotations

import ipaddress

from trt_spec.errors import SpecError

LOOPBACK = "127.0.0.1"


def plain_address(host: str, binder: str) -> str:
    """``serve.host`` as an address, for a host that cannot be asked what a name means there.

    ``binder`` is what binds it, for the message. Raises SpecError for every name but localhost.
    """
    if host == "localhost":
        return LOOPBACK
    try:
        return str(ipaddress.IPv4Address(host))
    except ValueError:
        raise SpecError(
            f"serve.host is {host!r}, and {binder} on addresses only.",
            remedy=f"Give an address: {LOOPBACK} for this machine only, or 0.0.0.0 for all of its addresses.",
        ) from None
