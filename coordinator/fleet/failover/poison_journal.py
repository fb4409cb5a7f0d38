"""Shares poison events among the processes of one port: a file in their common directory that all append to."""

import json
import logging
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class PoisonEvent:
    """A change of a PoisonCache."""

    kind: Literal["death", "survived", "poison"]
    when: float
    """By the monotonic clock, which processes of a machine share."""
    fingerprints: frozenset[bytes]
    """Those of the requests concerned."""
    instance_id: str = ""
    """Of the worker that died."""
    certain: bool = False
    unproven_at: str = ""
    """Its address, if it may fail for everybody."""


class PoisonJournal:
    """Every process reads the same events in the same order, its own among them."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / "poison.journal"
        self._read = 0

    def append(self, event: PoisonEvent) -> bool:
        """Write an event for all to read; return whether that worked."""
        try:
            # A single write to a file that is open for appending is not interleaved with those of others.
            with self._path.open("ab", buffering=0) as file:
                file.write(_dumped(event) + b"\n")
        except OSError as error:
            log.warning("cannot share a poison event: %s", error)
            return False
        return True

    def read_new(self) -> Sequence[PoisonEvent]:
        """Return the events that were written since the last call: a single stat while there are none."""
        try:
            if os.stat(self._path).st_size <= self._read:  # in the path of every request
                return ()
            with self._path.open("rb") as file:
                file.seek(self._read)
                complete, _, _ = file.read().rpartition(b"\n")
        except OSError:
            return ()  # nothing has been written yet
        self._read += len(complete) + 1 if complete else 0
        return [_loaded(line) for line in complete.splitlines()]


def _dumped(event: PoisonEvent) -> bytes:
    fingerprints = sorted(each.hex() for each in event.fingerprints)
    return json.dumps(
        [event.kind, event.when, fingerprints, event.instance_id, event.certain, event.unproven_at]
    ).encode()


def _loaded(line: bytes) -> PoisonEvent:
    kind, when, fingerprints, *worker = json.loads(line)
    return PoisonEvent(kind, when, frozenset(map(bytes.fromhex, fingerprints)), *worker)
