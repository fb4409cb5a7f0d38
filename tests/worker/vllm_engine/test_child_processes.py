"""Processes of an engine, when a terminal or a start that is broken off would end them."""

import multiprocessing
import subprocess
import sys
from multiprocessing.connection import Connection
from pathlib import Path

import psutil

from tokenwire.worker.vllm_engine.child_processes import kill_children


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


_SHIELDED = """
import multiprocessing, os, signal, threading
from tokenwire.worker.vllm_engine.child_processes import shield_children_from_ctrl_c

def wait_to_be_told(told):
    told.send(os.getpid())
    told.recv()

if __name__ == "__main__":
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    core = context.Process(target=wait_to_be_told, args=[theirs])

    def start():
        shield_children_from_ctrl_c()
        core.start()

    thread = threading.Thread(target=start)
    thread.start()
    thread.join()
    os.kill(ours.recv(), signal.SIGINT)
    ours.send("end")
    core.join(30)
    print(core.exitcode)
"""


def test_ctrl_c_does_not_reach_what_a_shielded_thread_starts(tmp_path: Path) -> None:
    """A terminal sends it to every process; one that was shielded goes on until it is told to end."""
    script = tmp_path / "shielded.py"  # in a process that has started no other yet, as a worker's
    script.write_text(_SHIELDED)

    ran = subprocess.run([sys.executable, script], capture_output=True, text=True, check=True)

    assert (ran.stdout, ran.stderr) == ("0\n", "")
