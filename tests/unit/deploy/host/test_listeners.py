from __future__ import annotations

import os
import socket

from trt_spec.deploy.host.listeners import find_listener, is_listening


def test_the_owner_of_a_port() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        owner = find_listener(port)
        assert owner is not None
        assert owner[0] == os.getpid()
        assert owner[1]
        assert is_listening([os.getpid()], port)
        assert not is_listening([1], port)
        assert not is_listening([], port)
    assert find_listener(port) is None
    assert not is_listening([os.getpid()], port)


def test_ipv6_listeners_count() -> None:
    with socket.socket(socket.AF_INET6, socket.SOCK_STREAM) as server:
        server.bind(("::", 0))
        server.listen(1)
        assert is_listening([os.getpid()], server.getsockname()[1])


def test_a_client_s_end_is_no_listener() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as client:
        assert find_listener(client.getsockname()[1]) is None
