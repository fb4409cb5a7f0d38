"""The way of a chat through the coordinator stays short: counts of calls, which no machine changes."""

import re
import subprocess
import sys

MAX_FILES = 30
MAX_MOVES = 60


def test_a_chat_is_submitted_by_few_files() -> None:
    """From its arrival to its submission a streamed chat passes through few files, and seldom back and forth."""
    walk = subprocess.run(
        [sys.executable, "-m", "benchmarks.walk"], stdout=subprocess.PIPE, text=True, check=True, timeout=120
    ).stdout

    counts = re.search(r"(\d+) files, (\d+) moves between files", walk)
    assert counts is not None
    assert int(counts[1]) <= MAX_FILES, walk
    assert int(counts[2]) <= MAX_MOVES, walk
