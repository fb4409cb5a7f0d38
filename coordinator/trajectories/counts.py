"""How many nodes a process has recorded in a session, by which readers see how many of them are missing."""

import os
from collections import Counter
from hashlib import blake2b
from typing import NamedTuple

from tokenwire.coordinator.trajectories.store import SessionKey

_MOST_SESSIONS = 32 * 1024
"""About 300 bytes each."""
_DIGEST_BYTES = 16
_RUN_BYTES = 4


class NodeCount(NamedTuple):
    """Nodes that one process has recorded in one session, without a break."""

    run: str
    """Names that process and its count: if it forgets the count, it begins another one."""
    nodes: int


class RecordedCounts:
    """The counts of the sessions recorded last, stored or not."""

    def __init__(self, most: int = _MOST_SESSIONS) -> None:
        self._most = most
        self._counts: dict[bytes, NodeCount] = {}
        """By digests of keys, which may be long; in order of use."""

    def add(self, key: SessionKey, nodes: int) -> NodeCount:
        """Count nodes; return how many there were before."""
        digest = _digest(key)
        before = self._counts.pop(digest, None) or NodeCount(os.urandom(_RUN_BYTES).hex(), 0)
        self._counts[digest] = NodeCount(before.run, before.nodes + nodes)
        if len(self._counts) > self._most:
            del self._counts[next(iter(self._counts))]
        return before

    def find(self, key: SessionKey) -> NodeCount | None:
        """Return a session's count, None if this process knows of no nodes."""
        return self._counts.get(_digest(key))

    def forget(self, key: SessionKey) -> None:
        """Count anew: a session was deleted on purpose."""
        self._counts.pop(_digest(key), None)


class FoundNodes:
    """The nodes that a reader finds in a session."""

    def __init__(self, recorded: NodeCount | None) -> None:
        """`recorded`: what the reader's own process has recorded in it."""
        self._recorded = Counter[str]() if recorded is None else Counter({recorded.run: recorded.nodes})
        self._found: Counter[str] = Counter()
        self._left_out = 0

    def add(self, run: str, earlier: int, choices: int, *, left_out: bool) -> None:
        """Take a turn, which is left out if what it refers to is missing; without a run its nodes are not counted."""
        if run:
            self._recorded[run] = max(self._recorded[run], earlier + choices)
            self._found[run] += 0 if left_out else choices
        elif left_out:
            self._left_out += choices

    @property
    def missing(self) -> int:
        """How many nodes were recorded and are not there."""
        return self._left_out + (self._recorded - self._found).total()


def _digest(key: SessionKey) -> bytes:
    return blake2b("\0".join(key).encode(errors="surrogatepass"), digest_size=_DIGEST_BYTES).digest()
