"""CPU time that an engine's processes use while it makes no step."""

import subprocess
import sys

import pytest

from tokenwire.worker.engine_cpu import StallCpu, children_cpu_s

_COMPUTE = "import time\nwhile time.process_time() < 0.3: pass\nprint(flush=True)\ninput()"


def test_a_stall_is_measured_from_its_begin() -> None:
    """What was used before does not count; where nobody knows, nothing is told."""
    used = iter([5.0, 7.5, 8.0, None])
    cpu = StallCpu(lambda: next(used))
    assert [cpu.spent_s(stalled_s) for stalled_s in (0, 0.5, 1.0, 0, 0.5, 1.0)] == [None, 0.0, 2.5, None, 0.0, None]


@pytest.mark.skipif(sys.platform != "linux", reason="/proc is Linux's")
def test_children_are_counted() -> None:
    """A child that computes adds what it uses."""
    before = children_cpu_s() or 0.0
    with subprocess.Popen([sys.executable, "-c", _COMPUTE], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        assert (children_cpu_s() or 0.0) - before >= 0.25
        child.communicate(b"\n")
