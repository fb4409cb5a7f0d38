"""The engine's processes, and those that they started in turn."""

import contextlib
import multiprocessing

import psutil


def kill_children() -> None:
    """Kill all processes that multiprocessing has started here, with all below them."""
    for child in multiprocessing.active_children():
        # Those below first: without their parent nobody would find them.
        with contextlib.suppress(psutil.NoSuchProcess):
            for each in psutil.Process(child.pid).children(recursive=True):
                with contextlib.suppress(psutil.NoSuchProcess):
                    each.kill()
        child.kill()
