"""The order in which a model's requests wait: resumed ones, then by priority, then fair among tenants."""

import heapq
import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field

from tokenwire.coordinator.fleet.request_handle import Placement
from tokenwire.coordinator.fleet.slots import SlotListener
from tokenwire.v1 import inference_pb2 as pb

# What a reply will cost is not known; each counts as so many tokens beside its prompt.
_REPLY_TOKENS = 256
# Measured: a prompt's ids and text, and what a connection, its request and a detokenizer hold.
_BYTES_PER_TOKEN = 16
_BYTES_PER_SEQUENCE = 32 * 1024
_KEPT = 64


@dataclass(eq=False, slots=True)
class QueueEntry:
    """One waiting request. Places sort by who goes first."""

    submit: pb.Submit
    listeners: Sequence[SlotListener]
    placement: Placement
    rank: tuple[bool, int, float, int] = field(default=(False, 0, 0.0, 0))
    waiting_still: bool = True
    """Whether it still waits."""

    @property
    def sequences(self) -> int:
        """How many sequences it wants."""
        return len(self.listeners)

    @property
    def size_bytes(self) -> int:
        """About how much memory it takes."""
        return _BYTES_PER_TOKEN * len(self.submit.prompt_token_ids) + _BYTES_PER_SEQUENCE * len(self.listeners)

    @property
    def cost(self) -> int:
        """About how much work it is, in tokens."""
        return len(self.submit.prompt_token_ids) + _REPLY_TOKENS * len(self.listeners)

    def __lt__(self, other: "QueueEntry") -> bool:
        return self.rank < other.rank


class FairQueue:
    """The waiting requests of one model, apart by adapter: not every worker has each.

    Tenants of one priority get equal shares of the work: each request is due when its tenant's earlier ones are
    worked off at an equal share (start-time fair queueing), and who is due first goes first.
    """

    def __init__(self) -> None:
        self.sequences = 0
        """How many sequences wait."""
        self.requests = 0
        self.size_bytes = 0
        self._entries: dict[int, list[QueueEntry]] = {}
        self._arrivals = itertools.count()
        self._now = 0.0
        self._due: dict[str, float] = {}

    def add(self, submit: pb.Submit, listeners: Sequence[SlotListener], placement: Placement) -> QueueEntry:
        """Let a request in."""
        entry = QueueEntry(submit, listeners, placement)
        due = max(self._now, self._due.get(placement.tenant, 0.0))
        self._due[placement.tenant] = due + entry.cost
        entry.rank = (not placement.resumed, submit.priority, due, next(self._arrivals))
        heapq.heappush(self._entries.setdefault(submit.lora.id, []), entry)
        self.requests += 1
        self.sequences += entry.sequences
        self.size_bytes += entry.size_bytes
        return entry

    def remove(self, entry: QueueEntry, started: bool = False) -> None:
        """Let a request go; one that started moves the tenants' clock."""
        if not entry.waiting_still:
            return
        entry.waiting_still = False
        if started and not entry.placement.resumed:
            self._now = max(self._now, entry.rank[2])
        self.requests -= 1
        self.sequences -= entry.sequences
        self.size_bytes -= entry.size_bytes
        self._tidy(entry.submit.lora.id)

    def waits(self, adapter_id: int) -> bool:
        """Tell whether anybody waits for an adapter."""
        return adapter_id in self._entries

    def heads(self) -> list[QueueEntry]:
        """Return the first request of each adapter, whoever goes first of all first."""
        return sorted(entries[0] for entries in self._entries.values())

    def _tidy(self, adapter_id: int) -> None:
        entries = self._entries[adapter_id]
        if len(entries) > 2 * self.requests + _KEPT:  # who left from the middle is still in the heap
            entries[:] = [entry for entry in entries if entry.waiting_still]
            heapq.heapify(entries)
        while entries and not entries[0].waiting_still:
            heapq.heappop(entries)
        if not entries:
            del self._entries[adapter_id]
        if not self.requests:
            self._due.clear()
            self._now = 0.0
