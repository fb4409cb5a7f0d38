"""Publishes what an engine's prefix cache holds to coordinators: a snapshot first, then changes."""

import asyncio
from collections.abc import Callable, Iterable
from typing import Protocol, runtime_checkable

from tokenwire.v1 import inference_pb2 as pb

_PUBLISH_INTERVAL_S = 0.1
"""Slightly stale routing costs less than a message for each step."""


class CacheChange:
    """Prefix hashes stored and removed, as one net change. See tokenwire.protocol.prefix_hash."""

    __slots__ = ("cleared", "removed", "stored")

    def __init__(self, cleared: bool = False, stored: Iterable[int] = ()) -> None:
        self.cleared = cleared
        """Whether everything was removed before `stored`."""
        self.stored = set(stored)
        self.removed: set[int] = set()

    def __bool__(self) -> bool:
        return self.cleared or bool(self.stored) or bool(self.removed)

    def store(self, prefix: int) -> None:
        """Add a prefix."""
        self.removed.discard(prefix)
        self.stored.add(prefix)

    def remove(self, prefix: int) -> None:
        """Remove a prefix."""
        self.stored.discard(prefix)
        if not self.cleared:
            self.removed.add(prefix)

    def clear(self) -> None:
        """Remove all prefixes."""
        self.cleared, self.stored, self.removed = True, set(), set()

    def add(self, later: "CacheChange") -> None:
        """Merge a later change into this one."""
        if later.cleared:
            self.clear()
        for prefix in later.removed:
            self.remove(prefix)
        for prefix in later.stored:
            self.store(prefix)

    def to_event(self) -> pb.SessionResponse:
        """Return the change as a session event."""
        change = pb.CacheChange(cleared=self.cleared, removed=self.removed, stored=self.stored)
        return pb.SessionResponse(cache=change)


OnKvEvents = Callable[[CacheChange], None]


@runtime_checkable
class KvEventSource(Protocol):
    """An engine that publishes the changes of its prefix cache."""

    def subscribe_kv_events(self, on_change: OnKvEvents) -> bool:
        """Call `on_change` with every change, beginning with an empty cache; return whether there will be any."""


class KvEventPublisher:
    """Collects an engine's cache changes and publishes them a few times a second."""

    def __init__(self, publish: OnKvEvents) -> None:
        self._publish = publish
        self._held: set[int] | None = None
        self._unpublished = CacheChange()
        self._timer: asyncio.TimerHandle | None = None

    def start(self, engine: object) -> None:
        """Subscribe to an engine, if it publishes its cache."""
        if isinstance(engine, KvEventSource) and engine.subscribe_kv_events(self._on_events):
            self._held = set()

    def snapshot(self) -> CacheChange | None:
        """Return the whole cache as a change for a new subscriber; None if the engine publishes nothing."""
        return None if self._held is None else CacheChange(cleared=True, stored=self._held)

    def stop(self) -> None:
        """Publish nothing more."""
        if self._timer is not None:
            self._timer.cancel()

    def _on_events(self, change: CacheChange) -> None:
        if self._held is None:
            return
        if change.cleared:
            self._held.clear()
        self._held -= change.removed
        self._held |= change.stored
        self._unpublished.add(change)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_PUBLISH_INTERVAL_S, self._flush)

    def _flush(self) -> None:
        self._timer = None
        change, self._unpublished = self._unpublished, CacheChange()
        if change:
            self._publish(change)
