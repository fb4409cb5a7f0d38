"""A process that loads something slow and large once, and forks processes that have it: `python -m ... FD MODULE`.

It has one thread, because a fork copies only the one that calls it. What it loads is frozen for the garbage collector,
so that the processes share its memory. One of them may crash on what it is given without any harm to others.
"""

import gc
import importlib
import os
import signal
import socket
import sys
import traceback
from collections.abc import Callable, Sequence

from tokenwire.worker.media.framing import receive, send

READY = b"ready"
_BUSY_FACTOR = 2.5
"""By the clock a job may take so many times as much: 50 s by default, where coordinators wait for 60."""
Buffers = Sequence[memoryview | bytes]
ForkHandler = Callable[[bytes], tuple[bytes, Buffers]]
"""Takes a job; returns an answer, with buffers that the caller gets in shared memory, one after the other."""


def main(descriptor: int, module: str) -> None:
    """Load `module.load_handler(configuration)` and serve forks of it until the caller closes the socket."""
    control = socket.socket(fileno=descriptor)
    try:
        handler: ForkHandler = importlib.import_module(module).load_handler(receive(control)[0])
    except Exception as error:
        send(control, f"{type(error).__name__}: {error}".encode())
        raise
    gc.collect()
    gc.freeze()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # ended children leave nothing
    send(control, READY)
    while True:
        try:
            seconds, connection = receive(control)
        except (EOFError, OSError):
            return
        if connection is None:
            continue
        if os.fork() == 0:
            control.close()
            _serve(handler, connection, int(seconds))
        os.close(connection)


def _serve(handler: ForkHandler, descriptor: int, seconds: int) -> None:
    """Handle jobs until the caller closes the socket; one that takes so many seconds of CPU time ends this process."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    connection = socket.socket(fileno=descriptor)
    try:
        while True:
            job, _ = receive(connection)
            signal.setitimer(signal.ITIMER_PROF, seconds)
            signal.setitimer(signal.ITIMER_REAL, seconds * _BUSY_FACTOR)
            answer, buffers = handler(job)
            signal.setitimer(signal.ITIMER_PROF, 0)
            signal.setitimer(signal.ITIMER_REAL, 0)
            _respond(connection, answer, buffers)
    except EOFError:
        pass
    except Exception:
        traceback.print_exc()
    finally:
        os._exit(0)  # without what the loading process would do at its end


def _respond(connection: socket.socket, answer: bytes, buffers: Buffers) -> None:
    if not buffers:
        send(connection, answer)
        return
    # Without a name: it is gone once nobody has it open.
    memory = os.memfd_create("tokenwire-media")
    try:
        for buffer in buffers:
            view = memoryview(buffer).cast("B")
            while view:
                view = view[os.write(memory, view) :]
        send(connection, answer, memory)
    finally:
        os.close(memory)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
