"""Threads take their memory from one heap."""

import ctypes
import re
import subprocess
import sys
from pathlib import Path

import pytest

_COUNT_HEAPS = """
import ctypes, sys, tempfile, threading
from tokenwire.process.one_heap import use_one_heap
if sys.argv[1] == "one":
    assert use_one_heap()
libc = ctypes.CDLL(None)
libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
barrier = threading.Barrier(4)
def allocate():
    barrier.wait()
    libc.malloc(1000)
threads = [threading.Thread(target=allocate) for _ in range(4)]
[each.start() for each in threads]
[each.join() for each in threads]
libc.fopen.restype, libc.fclose.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
file = libc.fopen(sys.argv[2].encode(), b"w")
libc.malloc_info.argtypes = [ctypes.c_int, ctypes.c_void_p]
libc.malloc_info(0, file)
libc.fclose(file)
"""


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "malloc_info"), reason="glibc counts its heaps, others have none")
@pytest.mark.parametrize(("heaps", "is_one"), [("one", True), ("many", False)])
def test_threads_share_the_heap(heaps: str, is_one: bool, tmp_path: Path) -> None:
    """Without it, each of those that allocate at once has its own."""
    report = tmp_path / "heaps.xml"

    subprocess.run([sys.executable, "-c", _COUNT_HEAPS, heaps, str(report)], check=True)

    assert (len(re.findall("<heap nr=", report.read_text())) == 1) is is_one
