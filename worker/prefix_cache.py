"""What an engine's prefix cache holds, told to coordinators: all of it at first, then what changes."""

import asyncio
from collections.abc import Callable, Iterable
from typing import Protocol, runtime_checkable

from tokenwire.v1 import inference_pb2 as pb

_TELL_S = 0.1
"""How often changes are told: a choice of worker that is a little late costs less than a message for each step."""


class CacheChange:
    """Prefixes that came and went, by their names, as one net change. See tokenwire.prefix_hash."""

    __slots__ = ("cleared", "removed", "stored")

    def __init__(self, cleared: bool = False, stored: Iterable[int] = ()) -> None:
        self.cleared = cleared
        """Everything went before `stored` came."""
        self.stored = set(stored)
        self.removed: set[int] = set()

    def __bool__(self) -> bool:
        return self.cleared or bool(self.stored) or bool(self.removed)

    def store(self, name: int) -> None:
        """Add a prefix."""
        self.removed.discard(name)
        self.stored.add(name)

    def remove(self, name: int) -> None:
        """Take a prefix away."""
        self.stored.discard(name)
        if not self.cleared:
            self.removed.add(name)

    def clear(self) -> None:
        """Take everything away."""
        self.cleared, self.stored, self.removed = True, set(), set()

    def add(self, later: "CacheChange") -> None:
        """Let another change follow."""
        if later.cleared:
            self.clear()
        for name in later.removed:
            self.remove(name)
        for name in later.stored:
            self.store(name)

    def to_event(self) -> pb.SessionResponse:
        """Return the change as an event of a session."""
        change = pb.CacheChange(cleared=self.cleared, removed=self.removed, stored=self.stored)
        return pb.SessionResponse(cache=change)


HearCache = Callable[[CacheChange], None]


@runtime_checkable
class CacheEventLog(Protocol):
    """An engine that can say what its prefix cache holds."""

    def watch_cache(self, hear: HearCache) -> bool:
        """Have every change heard from now on, when the cache is empty; returns whether any will be."""


class CacheFeed:
    """Collects changes and hands them on, a few times a second."""

    def __init__(self, tell: HearCache) -> None:
        self._publish = tell
        self._held: set[int] | None = None
        self._untold = CacheChange()
        self._timer: asyncio.TimerHandle | None = None

    def begin(self, engine: object) -> None:
        """Listen to an engine, if it has something to say."""
        if isinstance(engine, CacheEventLog) and engine.watch_cache(self._on_events):
            self._held = set()

    def snapshot(self) -> CacheChange | None:
        """Return what somebody must hear who has heard nothing so far; None where nothing will ever be said."""
        return None if self._held is None else CacheChange(cleared=True, stored=self._held)

    def stop(self) -> None:
        """Tell nothing more."""
        if self._timer is not None:
            self._timer.cancel()

    def _on_events(self, change: CacheChange) -> None:
        if self._held is None:
            return
        if change.cleared:
            self._held.clear()
        self._held -= change.removed
        self._held |= change.stored
        self._untold.add(change)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_TELL_S, self._publish_all)

    def _publish_all(self) -> None:
        self._timer = None
        change, self._untold = self._untold, CacheChange()
        if change:
            self._publish(change)
