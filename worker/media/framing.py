"""Messages over a Unix socket, with which a file descriptor may come."""

import socket
import struct

_SIZE = struct.Struct(">Q")
MOST_BYTES = 2**31


def send(connection: socket.socket, data: bytes, descriptor: int | None = None) -> None:
    """Send a message. Raises OSError."""
    descriptors = [] if descriptor is None else [descriptor]
    socket.send_fds(connection, [_SIZE.pack(len(data))], descriptors)
    connection.sendall(data)


def receive(connection: socket.socket) -> tuple[bytes, int | None]:
    """Return a message and the descriptor that came with it. Raises EOFError at the end, or OSError."""
    head, descriptors, _, _ = socket.recv_fds(connection, _SIZE.size, 1)
    descriptor = descriptors[0] if descriptors else None
    head += _exactly(connection, _SIZE.size - len(head)) if head else b""
    if not head:
        raise EOFError
    size = _SIZE.unpack(head)[0]
    if size > MOST_BYTES:
        raise OSError(f"a message of {size} bytes")
    return _exactly(connection, size), descriptor


def _exactly(connection: socket.socket, size: int) -> bytes:
    data = bytearray(size)
    view = memoryview(data)
    while view:
        count = connection.recv_into(view)
        if not count:
            raise EOFError
        view = view[count:]
    return bytes(data)
