"""The way of a token through the coordinator stays short: counts of calls, which no machine changes."""

import re
import subprocess
import sys

import pytest

pytestmark = pytest.mark.slow

MOST_CALLS = 8
_OF_THE_REQUEST = 0.2
"""A function of tokens may be called a few times more for the request."""


def test_a_streamed_token_takes_few_calls() -> None:
    """From its sequence to the batch of writes, in Python; frames and system calls are shared by many tokens."""
    printed = subprocess.run(
        [sys.executable, "-m", "benchmarks.token_calls"], stdout=subprocess.PIPE, text=True, check=True, timeout=120
    ).stdout

    calls = {name: float(count) for name, count in re.findall(r"^(\S+) +(\d+\.\d+)$", printed, re.MULTILINE)}
    assert {"ResumableSequence.step", "WriteBatch.add"} <= calls.keys()
    assert sum(calls.values()) <= MOST_CALLS + _OF_THE_REQUEST, printed
