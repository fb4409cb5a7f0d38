"""CPU time of an engine's processes during a stall."""

import subprocess
import sys

import pytest

from tokenwire.worker.engine.cpu_time import StallCpuTime, children_cpu_s

_COMPUTE = "import time\nwhile time.process_time() < 0.3: pass\nprint(flush=True)\ninput()"


def test_cpu_time_is_measured_from_the_start_of_a_stall() -> None:
    """Earlier usage does not count; unknown usage is None."""
    used = iter([5.0, 7.5, 8.0, None])
    cpu = StallCpuTime(lambda: next(used))
    assert [cpu.spent_s(stalled_s) for stalled_s in (0, 0.5, 1.0, 0, 0.5, 1.0)] == [None, 0.0, 2.5, None, 0.0, None]


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
def test_children_are_counted() -> None:
    """A busy child process adds its CPU time."""
    before = children_cpu_s() or 0.0
    with subprocess.Popen([sys.executable, "-c", _COMPUTE], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        assert (children_cpu_s() or 0.0) - before >= 0.25
        child.communicate(b"\n")
