"""The environment of the processes of an engine, their shield from Ctrl-C, and their end with their descendants."""

import contextlib
import multiprocessing
import os
import signal
from multiprocessing import resource_tracker

import psutil


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


def kill_children() -> None:
    """Kill all processes that multiprocessing has started here, with their descendants."""
    for child in multiprocessing.active_children():
        # Descendants first: without their parent they could not be found.
        with contextlib.suppress(psutil.NoSuchProcess):
            for each in psutil.Process(child.pid).children(recursive=True):
                with contextlib.suppress(psutil.NoSuchProcess):
                    each.kill()
        child.kill()
