"""An engine's processes under Ctrl-C, and when a start is cancelled."""

import multiprocessing
import os
import subprocess
import sys
from multiprocessing.connection import Connection
from pathlib import Path

import psutil
import pytest

from tokenwire.worker.vllm_engine.child_processes import kill_children, set_child_environment


def _start_another(pids: Connection) -> None:
    """Start a process, send its pid, and wait for it."""
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(100)"]) as process:
        pids.send(process.pid)


def test_descendants_are_killed_too() -> None:
    """A process started by the engine core does not outlive it."""
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    core = context.Process(target=_start_another, args=[sender])
    core.start()
    descendant = psutil.Process(receiver.recv())

    kill_children()

    core.join(10)
    assert not psutil.wait_procs([descendant], timeout=10)[1]
    core.close()


_WORKER = """
import multiprocessing, os
from tokenwire.worker.vllm_engine.child_processes import end_with_worker, set_child_environment

def run(pipe):
    end_with_worker()
    pipe.send(os.getpid())
    pipe.recv()

if __name__ == "__main__":
    set_child_environment(30)
    end_with_worker()
    ours, theirs = multiprocessing.get_context("spawn").Pipe()
    core = multiprocessing.get_context("spawn").Process(target=run, args=[theirs])
    core.start()
    print(ours.recv(), flush=True)
    core.join()
"""


def test_a_worker_that_is_killed_leaves_no_engine(tmp_path: Path) -> None:
    """It would keep the memory of its GPU, and no other could start there."""
    script = tmp_path / "worker.py"
    script.write_text(_WORKER)
    with subprocess.Popen([sys.executable, script], stdout=subprocess.PIPE, text=True) as worker:
        assert worker.stdout is not None
        engine = psutil.Process(int(worker.stdout.readline()))

        worker.kill()

        assert not psutil.wait_procs([engine], timeout=10)[1]


_SHIELDED = """
import multiprocessing, os, signal, threading
from tokenwire.worker.vllm_engine.child_processes import shield_children_from_ctrl_c

def wait_for_message(pipe):
    pipe.send(os.getpid())
    pipe.recv()

if __name__ == "__main__":
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    core = context.Process(target=wait_for_message, args=[theirs])

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


def test_ctrl_c_does_not_reach_processes_of_a_shielded_thread(tmp_path: Path) -> None:
    """A terminal sends SIGINT to every process; a shielded one runs until it is stopped."""
    script = tmp_path / "shielded.py"  # in a process that has started no other yet, as a worker's
    script.write_text(_SHIELDED)

    ran = subprocess.run([sys.executable, script], capture_output=True, text=True, check=True)

    assert (ran.stdout, ran.stderr) == ("0\n", "")


def test_processes_are_spawned_unless_the_operator_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fork of a process with threads may hang; what is set already stays."""
    monkeypatch.delenv("VLLM_WORKER_MULTIPROC_METHOD", raising=False)
    monkeypatch.setenv("VLLM_WORKER_SHUTDOWN_TIMEOUT_SECONDS", "7")
    set_child_environment(30)
    assert os.environ["VLLM_WORKER_MULTIPROC_METHOD"] == "spawn"
    assert os.environ["VLLM_WORKER_SHUTDOWN_TIMEOUT_SECONDS"] == "7"
