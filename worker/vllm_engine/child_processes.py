"""The environment of the processes of an engine, their shield from Ctrl-C, and their end: none outlives its worker."""

import contextlib
import multiprocessing
import os
import select
import signal
import threading
from multiprocessing import resource_tracker

import psutil

_WORKER_PID = "_TOKENWIRE_WORKER_PID"
"""Set by the worker for its own children: no option."""


def shield_children_from_ctrl_c() -> None:
    """Block SIGINT in the processes that this thread starts: only the worker decides when they stop."""
    # Its first use, when a process is started, would unblock the signal.
    resource_tracker.ensure_running()
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})


def prepare_children(shutdown_s: float) -> None:
    """Prepare for the processes that this thread starts, which have this time for an end by themselves."""
    shield_children_from_ctrl_c()
    set_child_environment(shutdown_s)


def set_child_environment(shutdown_s: float) -> None:
    """Set what vLLM's server sets for the engine's processes, and their time to exit by themselves, where unset."""
    # A fork of this process, which has gRPC's threads, may hang.
    os.environ.setdefault("VLLM_WORKER_MULTIPROC_METHOD", "spawn")
    os.environ.setdefault("VLLM_WORKER_SHUTDOWN_TIMEOUT_SECONDS", str(int(shutdown_s - 5)))
    os.environ[_WORKER_PID] = str(os.getpid())


def end_with_worker() -> None:
    """Kill this process once the worker that it belongs to is gone, however that ended: nobody else would stop it.

    It would keep the GPU's memory, so that no other worker could start there. Does nothing in the worker itself, or
    on another machine.
    """
    pid = int(os.environ.get(_WORKER_PID, 0))
    if pid not in {each.pid for each in psutil.Process().parents()} or not hasattr(os, "pidfd_open"):
        return
    ended = select.poll()
    ended.register(os.pidfd_open(pid), select.POLLIN)

    def wait() -> None:
        ended.poll()
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=wait, name="end-with-worker", daemon=True).start()


def kill_children() -> None:
    """Kill all processes that multiprocessing has started here, with their descendants."""
    for child in multiprocessing.active_children():
        # Descendants first: without their parent they could not be found.
        with contextlib.suppress(psutil.NoSuchProcess):
            for each in psutil.Process(child.pid).children(recursive=True):
                with contextlib.suppress(psutil.NoSuchProcess):
                    each.kill()
        child.kill()
