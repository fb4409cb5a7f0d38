"""The interface of stores of trajectories, and the in-memory store, bounded in bytes and time."""

import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

SessionKey = tuple[str, str]
"""A tenant, and the id of its session."""

OnDropped = Callable[[SessionKey], None]
"""Called with a session of which something that was to be stored is not: later turns must not refer to it."""

_EVENT_BYTES = 120
_SESSION_BYTES = 800
"""Measured, without their contents."""


@dataclass(frozen=True, slots=True)
class StoredSession:
    """One session of a tenant, for lists."""

    id: str
    created_at: float
    """Seconds since 1970."""


class TrajectoryStore(Protocol):
    """Appends events to sessions, in order."""

    def append(self, key: SessionKey, share: str, event: bytes) -> None:
        """Append an event, at once for this process, soon for others; `share`: whose part of the memory it takes.

        Raises nothing: what cannot be stored is dropped.
        """

    async def read(self, key: SessionKey) -> Sequence[bytes]:
        """Return the events of a session, none if there is no such session. Raises Unavailable."""

    async def delete(self, key: SessionKey) -> bool:
        """Delete a session; return whether there was one. Raises Unavailable."""

    async def sessions(self, tenant: str) -> Sequence[StoredSession]:
        """Return the sessions of a tenant, the newest first. Raises Unavailable."""

    async def flush(self) -> None:
        """Wait until what was appended is where others find it. Raises Unavailable."""

    async def close(self) -> None:
        """Release connections and tasks."""


@dataclass(slots=True)
class _MemorySession:
    share: str
    created_at: float
    expires: float = 0.0
    size: int = _SESSION_BYTES
    events: list[bytes] = field(default_factory=list)


@dataclass(slots=True)
class _TenantPart:
    """What one tenant has stored."""

    keys: OrderedDict[SessionKey, None] = field(default_factory=OrderedDict)
    """In order of use."""
    size: int = 0


class MemoryTrajectoryStore:
    """Sessions with a TTL. If it is full, who has most of it loses the sessions that were used least recently."""

    def __init__(
        self,
        max_bytes: int,
        ttl_s: float,
        on_dropped: OnDropped,
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self._max_bytes = max_bytes
        self._ttl_s = ttl_s
        self._on_dropped = on_dropped
        self._clock = clock
        self._wall_clock = wall_clock
        self._sessions: OrderedDict[SessionKey, _MemorySession] = OrderedDict()
        """In order of use, and so of expiry."""
        self._parts: dict[str, _TenantPart] = {}
        self.size = 0
        """Bytes in use."""

    def __len__(self) -> int:
        return len(self._sessions)

    def append(self, key: SessionKey, share: str, event: bytes) -> None:
        """Append an event."""
        now = self._clock()
        session = self._sessions.get(key)
        if session is None:
            session = self._sessions[key] = _MemorySession(share, self._wall_clock())
            self._resize(session, _SESSION_BYTES)
        session.events.append(event)
        session.size += len(event) + _EVENT_BYTES
        self._resize(session, len(event) + _EVENT_BYTES)
        session.expires = now + self._ttl_s
        self._sessions.move_to_end(key)
        keys = self._parts[session.share].keys
        keys[key] = None
        keys.move_to_end(key)
        self._evict(now)

    async def read(self, key: SessionKey) -> Sequence[bytes]:
        """Return the events of a session."""
        self._evict(self._clock())
        session = self._sessions.get(key)
        return [] if session is None else [*session.events]

    async def delete(self, key: SessionKey) -> bool:
        """Delete a session."""
        return self._drop(key)

    async def sessions(self, tenant: str) -> Sequence[StoredSession]:
        """Return the sessions of a tenant."""
        self._evict(self._clock())
        own = [(key[1], session.created_at) for key, session in self._sessions.items() if key[0] == tenant]
        return [StoredSession(*each) for each in sorted(own, key=lambda each: -each[1])]

    async def flush(self) -> None:
        """Do nothing."""

    async def close(self) -> None:
        """Do nothing."""

    def _resize(self, session: _MemorySession, more: int) -> None:
        self.size += more
        self._parts.setdefault(session.share, _TenantPart()).size += more

    def _evict(self, now: float) -> None:
        while self._sessions:
            key, session = next(iter(self._sessions.items()))
            if session.expires > now:
                break
            self._drop(key)
        while self.size > self._max_bytes:
            largest = max(self._parts.values(), key=lambda part: part.size)
            self._drop(next(iter(largest.keys)))

    def _drop(self, key: SessionKey) -> bool:
        session = self._sessions.pop(key, None)
        if session is None:
            return False
        self._resize(session, -session.size)
        part = self._parts[session.share]
        del part.keys[key]
        if not part.keys:
            del self._parts[session.share]
        self._on_dropped(key)
        return True
