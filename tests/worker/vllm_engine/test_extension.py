"""The extension of vLLM's worker class: what it does to the process that it is in."""

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
def test_a_process_that_computes_ends_without_looking_for_garbage() -> None:
    """All that it holds is out of the collector's sight by then: else its end takes seconds, on a busy machine many."""
    ended = subprocess.run([sys.executable, "-c", _PROCESS], capture_output=True, text=True, check=True)

    assert ended.stdout.split() == ["True", "0"]
