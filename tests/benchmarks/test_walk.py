"""The way of a chat through the coordinator stays short: counts of calls, which no machine changes."""

import re
import subprocess
import sys

MOST = {
    "plain": (30, 58),
    "stop": (31, 60),
    "choices": (30, 60),
    "conversation": (33, 69),
    "ids": (33, 68),
    "tools": (31, 60),
}
"""Files and moves between files, by the chat's body.

Stop strings and tools add the file that checks them, text/stops.py and api/fields/tools.py; conversations and ids use
the history of exact tokens.
"""


def test_a_chat_is_submitted_by_few_files() -> None:
    """From its arrival to its submission a streamed chat passes through few files, and seldom back and forth."""
    walk = subprocess.run(
        [sys.executable, "-m", "benchmarks.walk"], stdout=subprocess.PIPE, text=True, check=True, timeout=120
    ).stdout

    found = re.findall(r"(\w+): (\d+) files, (\d+) moves between files", walk)
    counts = {body: (int(files), int(moves)) for body, files, moves in found}
    assert counts.keys() == MOST.keys()
    assert not [body for body, (files, moves) in counts.items() if files > MOST[body][0] or moves > MOST[body][1]], walk
