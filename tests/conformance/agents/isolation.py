"""Lets this process, and what it starts, reach nothing beyond loopback."""

import fcntl
import os
import socket
import struct
import sys
from collections.abc import Sequence

_ISOLATED = "TOKENWIRE_AGENTS_ISOLATED"
_SET_FLAGS, _UP_AND_RUNNING = 0x8914, 0x41


def isolate(module: str, arguments: Sequence[str]) -> None:
    """Start a module anew in a network of its own, unless it is there already. Linux only."""
    if os.environ.get(_ISOLATED):
        with socket.socket() as any_socket:
            fcntl.ioctl(any_socket, _SET_FLAGS, struct.pack("16sH14x", b"lo", _UP_AND_RUNNING))
        return
    command = ["unshare", "--map-root-user", "--net", sys.executable, "-m", module, *arguments]
    os.execvpe("unshare", command, {**os.environ, _ISOLATED: "1"})  # noqa: S606
