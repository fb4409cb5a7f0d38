"""The order of a model's queued requests: resumed ones first, then by priority, then fair among tenants."""

import asyncio
import heapq
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from tokenwire.coordinator.fleet.request_handle import Placement, RequestHandle
from tokenwire.coordinator.fleet.slots import SlotListener
from tokenwire.v1 import inference_pb2 as pb

# The length of a reply is unknown: each sequence counts as this many tokens in addition to its prompt.
_REPLY_TOKENS = 256
# Measured: ids and text of a prompt; a connection, its request and a detokenizer.
_BYTES_PER_TOKEN = 16
_BYTES_PER_SEQUENCE = 32 * 1024
_MAX_REMOVED = 64


@dataclass(eq=False, slots=True)
class QueuedRequest:
    """The handle of a queued request, then of its submission. They sort by their place in the queue."""

    model: str
    submit: pb.Submit
    listeners: Sequence[SlotListener]
    placement: Placement
    rank: tuple[bool, int, float, int] = field(default=(False, 0, 0.0, 0))
    queued: bool = True
    """Whether it is still queued."""
    handle: RequestHandle | None = None
    """Its submission to a worker; None while it waits."""
    timer: asyncio.TimerHandle | None = None
    on_abort: "Callable[[QueuedRequest], None]" = field(default=lambda queued: None)
    """Removes it from its queue."""

    def abort(self) -> None:
        """Remove it from the queue, or abort it on its worker."""
        if self.handle is not None:
            self.handle.abort()
        else:
            self.on_abort(self)

    def explain(self) -> str:
        """Return which worker has it; empty while queued."""
        return "" if self.handle is None else self.handle.explain()

    @property
    def sequences(self) -> int:
        """Its number of sequences."""
        return len(self.listeners)

    @property
    def size_bytes(self) -> int:
        """Its approximate memory."""
        return _BYTES_PER_TOKEN * len(self.submit.prompt_token_ids) + _BYTES_PER_SEQUENCE * len(self.listeners)

    @property
    def cost(self) -> int:
        """Its approximate work in tokens."""
        return len(self.submit.prompt_token_ids) + _REPLY_TOKENS * len(self.listeners)

    def __lt__(self, other: "QueuedRequest") -> bool:
        return self.rank < other.rank


class FairQueue:
    """The queued requests of one model, in a heap for each adapter, because not every worker has every adapter.

    Tenants of one priority get equal shares of the work (start-time fair queueing): the start tag of a request is the
    virtual time at which its tenant's earlier requests would be finished, and the lowest start tag goes first.
    """

    def __init__(self) -> None:
        self.sequences = 0
        """Queued sequences."""
        self.requests = 0
        self.size_bytes = 0
        self._entries: dict[int, list[QueuedRequest]] = {}
        self._arrivals = itertools.count()
        self._virtual_time = 0.0
        self._finish_tags: dict[str, float] = {}

    def add(self, entry: QueuedRequest) -> None:
        """Enqueue a request."""
        submit, placement = entry.submit, entry.placement
        start_tag = max(self._virtual_time, self._finish_tags.get(placement.tenant, 0.0))
        self._finish_tags[placement.tenant] = start_tag + entry.cost
        entry.rank = (not placement.resumed, submit.priority, start_tag, next(self._arrivals))
        heapq.heappush(self._entries.setdefault(submit.lora.id, []), entry)
        self.requests += 1
        self.sequences += entry.sequences
        self.size_bytes += entry.size_bytes

    def remove(self, entry: QueuedRequest, started: bool = False) -> None:
        """Remove a queued request; one that started advances the virtual time."""
        entry.queued = False
        if started and not entry.placement.resumed:
            self._virtual_time = max(self._virtual_time, entry.rank[2])
        self.requests -= 1
        self.sequences -= entry.sequences
        self.size_bytes -= entry.size_bytes
        self._tidy(entry.submit.lora.id)

    def __iter__(self) -> Iterator[QueuedRequest]:
        """Yield the queued requests, in no particular order."""
        return (entry for entries in self._entries.values() for entry in entries if entry.queued)

    def waits(self, adapter_id: int) -> bool:
        """Return whether requests of an adapter are queued."""
        return adapter_id in self._entries

    def heads(self) -> list[QueuedRequest]:
        """Return the first request of each adapter, in order."""
        return sorted(entries[0] for entries in self._entries.values())

    def _tidy(self, adapter_id: int) -> None:
        entries = self._entries[adapter_id]
        if len(entries) > 2 * self.requests + _MAX_REMOVED:  # those removed from the middle are still in the heap
            entries[:] = [entry for entry in entries if entry.queued]
            heapq.heapify(entries)
        while entries and not entries[0].queued:
            heapq.heappop(entries)
        if not entries:
            del self._entries[adapter_id]
        if not self.requests:
            self._finish_tags.clear()
            self._virtual_time = 0.0
