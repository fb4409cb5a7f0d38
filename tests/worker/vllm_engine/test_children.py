"""Processes of an engine whose start is broken off."""

import multiprocessing
import subprocess
import sys
from multiprocessing.connection import Connection

import psutil

from worker.vllm_engine.children import kill_children


def _start_another(told: Connection) -> None:
    """Start a process, tell which one, and wait for it."""
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(100)"]) as process:
        told.send(process.pid)


def test_those_below_are_killed_too() -> None:
    """A process that an engine's core has started does not outlive it."""
    context = multiprocessing.get_context("spawn")
    told, tell = context.Pipe(duplex=False)
    core = context.Process(target=_start_another, args=[tell])
    core.start()
    below = psutil.Process(told.recv())

    kill_children()

    core.join(10)
    assert not psutil.wait_procs([below], timeout=10)[1]
    core.close()
