"""`python -m benchmarks.system_calls`: how much of a chunk's write is the call itself, and how much is TCP."""

import os
import socket
import time
from collections.abc import Callable

import click

_CHUNK = bytes(280)
_CALLS = 20_000


def _us(write: Callable[[bytes], object], after: Callable[[], object]) -> float:
    """Return the CPU time of a call, the least of five series."""
    series = []
    for _ in range(5):
        used = 0.0
        for _ in range(_CALLS // 100):
            before = time.process_time()
            for _ in range(100):
                write(_CHUNK)
            used += time.process_time() - before
            after()
        series.append(1e6 * used / _CALLS)
    return min(series)


@click.command()
def main() -> None:
    """Measure writes of a chunk to a connection on loopback, and to nowhere."""
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as client:
        accepted, _ = server.accept()
        with accepted, open(os.devnull, "wb", buffering=0) as nowhere:
            accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection = _us(accepted.send, lambda: client.recv(100 * len(_CHUNK), socket.MSG_WAITALL))
            click.echo(f"to a connection {connection:.2f} µs, to nowhere {_us(nowhere.write, lambda: None):.2f} µs")


if __name__ == "__main__":
    main()
