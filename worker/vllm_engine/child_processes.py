"""The engine's processes, and those that they started in turn."""

import contextlib
import multiprocessing
import signal
from multiprocessing import resource_tracker

import psutil


def shield_children_from_ctrl_c() -> None:
    """Keep Ctrl-C in a terminal from the processes that this thread starts: the worker alone decides when they end."""
    # Its first use, which is the start of a process, would lift the block.
    resource_tracker.ensure_running()
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})


def kill_children() -> None:
    """Kill all processes that multiprocessing has started here, with all below them."""
    for child in multiprocessing.active_children():
        # Those below first: without their parent nobody would find them.
        with contextlib.suppress(psutil.NoSuchProcess):
            for each in psutil.Process(child.pid).children(recursive=True):
                with contextlib.suppress(psutil.NoSuchProcess):
                    each.kill()
        child.kill()
