"""What a fork server loads in tests: jobs that answer, crash, hang and die."""

import os
import time
from pathlib import Path

from tokenwire.worker.media.fork_server import Buffers, ForkHandler


def load_handler(configuration: bytes) -> ForkHandler:
    """Return a handler that remembers its configuration; one is refused, and the path of a pipe is read."""
    if configuration == b"broken":
        raise ValueError("this configuration is broken")
    if configuration.startswith(b"/"):
        configuration = Path(configuration.decode()).read_bytes()
    loader = os.getpid()

    def handle(job: bytes) -> tuple[bytes, Buffers]:
        match job:
            case b"who":
                return f"{loader} {os.getpid()}".encode(), ()
            case b"crash":
                os.abort()
            case b"raise":
                raise RuntimeError("a job raises")
            case b"hang":
                while True:
                    time.sleep(60)
            case b"busy":
                while True:
                    pass
            case b"large":
                return b"large", [memoryview(bytes(range(256)) * 40_000), b"end"]
        return configuration + b" " + job, ()

    return handle
