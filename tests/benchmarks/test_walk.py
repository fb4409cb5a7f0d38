"""The way of a chat through the coordinator stays short: counts of calls, which no machine changes."""

import re
import subprocess
import sys

import pytest

from benchmarks.walk import BODIES, WITH_KEY

pytestmark = pytest.mark.slow

MOST_FILES, MOST_MOVES = 37, 77
MORE_MOVES = {"conversation": 85, "ids": 82, "structured": 79}
MORE_FILES = {"conversation": 40, "ids": 39, "structured": 39}
"""Conversations and ids add the three files of exact history: of conversations, of digests, and of one request; those
with a name the one that compares their prompts.

A grammar adds the fields that define it, its limits, and the rule of seeds for a request that may be replayed. Three of
each walk's are of tenants' shares: the shares, the meter of a sequence, and the fair queue that counts what runs. One
is of the memory that a request claims, one of what it may take, one of what the model's tokenizer knows: ids of its own
need no check; and one of the pace at which the requests of a burst begin. One move is to where a prompt's text starts,
which its choices share.
"""


def test_a_chat_is_submitted_by_few_files() -> None:
    """From its arrival to its submission a streamed chat passes through few files, and seldom back and forth."""
    walk = subprocess.run(
        [sys.executable, "-m", "benchmarks.walk"], stdout=subprocess.PIPE, text=True, check=True, timeout=120
    ).stdout

    found = re.findall(r"(\w+): (\d+) files, (\d+) moves between files", walk)
    counts = {kind: (int(files), int(moves)) for kind, files, moves in found}
    assert counts.keys() == {*BODIES, WITH_KEY}
    long = [
        kind
        for kind, (files, moves) in counts.items()
        if files > MORE_FILES.get(kind, MOST_FILES) or moves > MORE_MOVES.get(kind, MOST_MOVES)
    ]
    assert not long, walk
