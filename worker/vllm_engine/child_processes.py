"""Shields the engine's processes from Ctrl-C, and kills them with their descendants."""

import contextlib
import multiprocessing
import signal
from multiprocessing import resource_tracker

import psutil


def shield_children_from_ctrl_c() -> None:
    """Block SIGINT in the processes that this thread starts: only the worker decides when they stop."""
    # Its first use, when a process is started, would unblock the signal.
    resource_tracker.ensure_running()
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})


def kill_children() -> None:
    """Kill all processes that multiprocessing has started here, with their descendants."""
    for child in multiprocessing.active_children():
        # Descendants first: without their parent they could not be found.
        with contextlib.suppress(psutil.NoSuchProcess):
            for each in psutil.Process(child.pid).children(recursive=True):
                with contextlib.suppress(psutil.NoSuchProcess):
                    each.kill()
        child.kill()
