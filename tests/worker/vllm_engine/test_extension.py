"""The extension of vLLM's worker class, in the process that it is loaded into."""

import subprocess
import sys

import pytest

# What is registered first is called last.
_PROCESS = """
import atexit, gc
atexit.register(lambda: print(gc.get_freeze_count() > 0, gc.get_count()[2]))
import tokenwire.worker.vllm_engine.extension
"""


@pytest.mark.engine
def test_an_exiting_process_does_not_collect_garbage() -> None:
    """Its objects are frozen by then: collecting them would take seconds, and more on a busy machine."""
    ended = subprocess.run([sys.executable, "-c", _PROCESS], capture_output=True, text=True, check=True)

    assert ended.stdout.split() == ["True", "0"]
