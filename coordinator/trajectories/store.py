"""The interface of stores of trajectories, and the in-memory store, bounded in bytes and time."""

import logging
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Protocol

from tokenwire.coordinator.trajectories.session_limit import SessionLimit, StoredEvent
from tokenwire.process.fair_memory import FairMemory

log = logging.getLogger(__name__)

SessionKey = tuple[str, str]
"""A tenant, and the id of its session."""

OnDropped = Callable[[SessionKey], None]
"""Called with a session of which something is not stored, or no more: later turns must not refer to it."""

FULL = "--trajectories-mb is full: sessions dropped since the start: %d"
_WARN_S = 60.0
"""Between two of these warnings."""
MOST_LISTED = 1000
"""Sessions in a list."""
_EVENT_BYTES = 120
_SESSION_BYTES = 800
"""Measured, without their contents."""


@dataclass(frozen=True, slots=True)
class StoredSession:
    """One session of a tenant, for lists."""

    id: str
    created_at: float
    """Seconds since 1970."""


@dataclass(slots=True)
class DropCounts:
    """What a process has dropped, since it started."""

    events: int = 0
    """That were not stored."""
    sessions: int = 0
    """Whole ones, before their TTL, because there was no room for them."""


class TrajectoryStore(Protocol):
    """Appends events to sessions, in order."""

    @property
    def dropped(self) -> DropCounts:
        """What this process has dropped."""

    @property
    def most_session_bytes(self) -> float:
        """What a session may have with all rewards and metadata: none of them is stored beyond that."""

    def append(self, key: SessionKey, share: str, event: bytes) -> None:
        """Append an event, at once for this process, soon for others; `share`: whose part of the memory it takes.

        Raises nothing: what cannot be stored is dropped.
        """

    async def put(self, key: SessionKey, share: str, event: bytes) -> None:
        """Append a reward or metadata, which take the reserve, and wait until they are stored. Raises Unavailable if
        they are not.
        """

    async def size_of(self, key: SessionKey) -> int:
        """Return about how many bytes a session has, 0 if there is no such session. Raises Unavailable."""

    async def read(self, key: SessionKey) -> Sequence[bytes]:
        """Return the events of a session, none if there is no such session. Raises Unavailable."""

    async def delete(self, key: SessionKey) -> bool:
        """Delete a session; return whether there was one. Raises Unavailable."""

    async def sessions(self, tenant: str, limit: int = MOST_LISTED, since: float = 0.0) -> Sequence[StoredSession]:
        """Return the sessions of a tenant that began since then, the newest first. Raises Unavailable.

        It takes a time that grows with the limit, and not with what there is, for all of the coordinator's streams.
        """

    async def flush(self) -> None:
        """Wait until what was appended is where others find it. Raises Unavailable, also if some of it was dropped."""

    async def close(self) -> None:
        """Release connections and tasks."""


@dataclass(slots=True)
class _MemorySession:
    events: list[bytes] = field(default_factory=list)
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
        limit: SessionLimit | None = None,
    ) -> None:
        self._limit = limit or SessionLimit()
        self._on_dropped = on_dropped
        self._clock = clock
        self._memory = FairMemory[SessionKey, _MemorySession](max_bytes, ttl_s, clock, self._dropped)
        self._began: dict[str, dict[str, float]] = {}
        """When the sessions of each tenant began, in that order, by their ids."""
        self._wall_clock = wall_clock
        self._warn_at = -math.inf

    def __len__(self) -> int:
        return len(self._memory)

    @property
    def size(self) -> int:
        """Bytes in use."""
        return self._memory.size

    @property
    def dropped(self) -> DropCounts:
        """What was dropped."""
        return DropCounts(self._limit.dropped, self._memory.evicted)

    @property
    def most_session_bytes(self) -> float:
        """By the limit of sessions."""
        return self._limit.most_with_reserve

    def append(self, key: SessionKey, share: str, event: bytes) -> None:
        """Append an event, if it fits into its session."""
        self._append(key, share, StoredEvent(event))

    async def put(self, key: SessionKey, share: str, event: bytes) -> None:
        """Append an event, if it fits into its session with the reserve."""
        self._append(key, share, StoredEvent(event, takes_reserve=True))

    def _append(self, key: SessionKey, share: str, stored: StoredEvent) -> None:
        event = stored.contents
        session, size = self._memory.find(key), len(event) + _EVENT_BYTES
        taken = 0 if session is None else session.size
        if not self._limit.fitting(key[1], taken, [stored]):
            self._on_dropped(key)
            return
        if session is None:
            session = _MemorySession()
            self._began.setdefault(key[0], {})[key[1]] = self._wall_clock()
            self._memory.put(key, session, share, _SESSION_BYTES)
        session.events.append(event)
        session.size += len(event)
        evicted = self._memory.evicted
        self._memory.grow(key, size)
        if self._memory.evicted > evicted:
            self._warn()

    def _dropped(self, key: SessionKey) -> None:
        began = self._began[key[0]]
        del began[key[1]]
        if not began:
            del self._began[key[0]]
        self._on_dropped(key)

    def _warn(self) -> None:
        now = self._clock()
        if now >= self._warn_at:
            self._warn_at = now + _WARN_S
            log.warning(FULL, self._memory.evicted)

    async def size_of(self, key: SessionKey) -> int:
        """Return the bytes of a session."""
        session = self._memory.find(key)
        return 0 if session is None else session.size

    async def read(self, key: SessionKey) -> Sequence[bytes]:
        """Return the events of a session."""
        session = self._memory.find(key)
        return [] if session is None else [*session.events]

    async def delete(self, key: SessionKey) -> bool:
        """Delete a session."""
        return self._memory.drop(key)

    async def sessions(self, tenant: str, limit: int = MOST_LISTED, since: float = 0.0) -> Sequence[StoredSession]:
        """Return the sessions of a tenant."""
        self._memory.expire()
        newest = islice(reversed(self._began.get(tenant, {}).items()), limit)
        return [StoredSession(name, began) for name, began in newest if began >= since]

    async def flush(self) -> None:
        """Do nothing."""

    async def close(self) -> None:
        """Do nothing."""
