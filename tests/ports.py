"""Ports that nobody listens on."""

import socket
from contextlib import ExitStack


def free_ports(count: int) -> list[int]:
    """Return as many different ports."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [int(each.getsockname()[1]) for each in sockets]


def free_port() -> int:
    """Return one port."""
    return free_ports(1)[0]
