"""Sessions in Redis, for several coordinators: a list of events for each, and a set of each tenant's sessions."""

import json
import os
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from hashlib import blake2b
from typing import Any

from tokenwire.coordinator.shared_redis import RedisHealth, open_redis
from tokenwire.coordinator.trajectories.marks import SessionMarks
from tokenwire.coordinator.trajectories.session_limit import SessionLimit, StoredEvent
from tokenwire.coordinator.trajectories.settings import TrajectorySettings
from tokenwire.coordinator.trajectories.store import MOST_LISTED, DropCounts, OnDropped, SessionKey, StoredSession
from tokenwire.coordinator.trajectories.write_queue import STORE, Append, WriteQueue

_EVENTS = b"tokenwire:trajectories:1:"
_SESSIONS = b"tokenwire:trajectories-of:1:"
_MARK = b"tokenwire mark "
"""Begins what a coordinator writes before its first event, by which it knows the list again; it is nobody's event."""
_MARK_BYTES = 8
_TIMEOUT_S = 5.0
"""Of one command: long sessions have many megabytes."""
_MOST_KEPT = 10_000
"""Sessions that a tenant's list has, the newest: what expires stays there until somebody reads the list."""
_PAGE = 200
"""Sessions of which the list is read at a time."""


class RedisTrajectoryStore:
    """Writes in the background, in order. Whoever cannot be answered gets Unavailable, within some seconds."""

    def __init__(self, settings: TrajectorySettings, on_dropped: OnDropped, most_listed: int = _MOST_KEPT) -> None:
        """Configure the client; it connects on first use."""
        assert settings.store is not None
        self._most_listed = most_listed
        self._ttl_s = max(1, round(settings.ttl_s))
        self._redis = open_redis(settings.store, settings.store_password, _TIMEOUT_S)
        self._health = RedisHealth("recording no sessions")
        self._marks = SessionMarks[tuple[int, bytes]](on_dropped)
        """Places in lists, and what was written there."""
        self._limit = SessionLimit(settings.max_session_bytes)
        self._queue = WriteQueue(self._write, settings.max_bytes, on_dropped)

    @property
    def dropped(self) -> DropCounts:
        """What was dropped; what Redis drops, only Redis knows."""
        return DropCounts(self._queue.dropped + self._limit.dropped)

    @property
    def most_session_bytes(self) -> float:
        """By the limit of sessions."""
        return self._limit.most_with_reserve

    def append(self, key: SessionKey, share: str, event: bytes) -> None:
        """Queue an event."""
        self._queue.put(key, event)

    async def put(self, key: SessionKey, share: str, event: bytes) -> None:
        """Write an event."""
        await self._queue.store(key, event)

    async def size_of(self, key: SessionKey) -> int:
        """Return what a session takes of Redis' memory."""
        await self._queue.settle()
        async with self._answer():
            reply: Any = await self._redis.memory_usage(_name(_EVENTS, *key), samples=0)  # as its limit counts it
        return reply or 0

    async def read(self, key: SessionKey) -> Sequence[bytes]:
        """Return the events of a session."""
        await self._queue.settle()
        async with self._answer():
            reply: Any = await self._redis.lrange(_name(_EVENTS, *key), 0, -1)
        mark = _digest(*key)
        # Whatever Redis holds there, only what was stored for this session is its tenant's.
        return [each[len(mark) :] for each in reply if each.startswith(mark)]

    async def delete(self, key: SessionKey) -> bool:
        """Delete a session."""
        await self._queue.settle()
        self._marks.drop(key)
        async with self._answer(), self._redis.pipeline() as pipe:
            pipe.delete(_name(_EVENTS, *key))
            pipe.zrem(_name(_SESSIONS, key[0]), _member(key[1]))
            deleted, _ = await pipe.execute()
        return bool(deleted)

    async def sessions(self, tenant: str, limit: int = MOST_LISTED, since: float = 0.0) -> Sequence[StoredSession]:
        """Return the sessions of a tenant; those that have expired are forgotten."""
        await self._queue.settle()
        name, found = _name(_SESSIONS, tenant), list[StoredSession]()
        while len(found) < limit:
            size = min(_PAGE, limit - len(found))
            async with self._answer(), self._redis.pipeline(transaction=False) as pipe:
                reply: Any = await self._redis.zrevrangebyscore(name, "+inf", since, len(found), size, withscores=True)
                members: list[tuple[bytes, float]] = reply
                page = [StoredSession(json.loads(member), created_at) for member, created_at in members]
                for session in page:
                    pipe.exists(_name(_EVENTS, tenant, session.id))
                exist = await pipe.execute()
                expired = [member for (member, _), exists in zip(members, exist, strict=True) if not exists]
                if expired:
                    await self._redis.zrem(name, *expired)
            found += [session for session, exists in zip(page, exist, strict=True) if exists]
            if len(page) < size:
                break
        return found

    async def flush(self) -> None:
        """Wait until everything is written."""
        await self._queue.flush()

    async def close(self) -> None:
        """Write what is queued, if Redis responds, and disconnect."""
        await self._queue.close()
        await self._redis.aclose()

    async def _write(self, batch: Sequence[Append]) -> None:
        now = time.time()
        events: defaultdict[SessionKey, list[StoredEvent]] = defaultdict(list)
        for each in batch:
            events[each.key].append(StoredEvent(_digest(*each.key) + each.event, each.takes_reserve))
        by_session = await self._fitting(events)
        if not by_session:
            return
        written = {key: self._marks.find(key) or (-1, _MARK + os.urandom(_MARK_BYTES)) for key in by_session}
        async with self._answer(), self._redis.pipeline(transaction=False) as pipe:
            for key, (place, mark) in written.items():
                pipe.rpush(_name(_EVENTS, *key), *([mark] if place < 0 else []), *by_session[key])
                pipe.lindex(_name(_EVENTS, *key), max(place, 0))
            for key in by_session:
                pipe.expire(_name(_EVENTS, *key), self._ttl_s)
                pipe.zadd(_name(_SESSIONS, key[0]), {_member(key[1]): now}, nx=True)
            for tenant in {key[0] for key in by_session}:
                pipe.zremrangebyrank(_name(_SESSIONS, tenant), 0, -self._most_listed - 1)
                pipe.expire(_name(_SESSIONS, tenant), self._ttl_s)
            replies: Any = await pipe.execute()
        for (key, (place, mark)), length, found in zip(written.items(), replies[::2], replies[1::2], strict=False):
            if place < 0:
                self._marks.put(key, (length - len(by_session[key]) - 1, mark))
            elif found != mark:  # another process, or Redis, has dropped the list that had it
                self._marks.drop(key)

    async def _fitting(self, by_session: Mapping[SessionKey, list[StoredEvent]]) -> dict[SessionKey, list[bytes]]:
        """Return what fits into its session."""
        async with self._answer(), self._redis.pipeline(transaction=False) as pipe:
            for key in by_session:
                pipe.memory_usage(_name(_EVENTS, *key), samples=0)  # an estimate by a few is often wrong by far
            sizes: Any = await pipe.execute(raise_on_error=False)
        found = {}
        for (key, events), size in zip(by_session.items(), sizes, strict=True):
            fitting = self._limit.fitting(key[1], size if isinstance(size, int) else 0, events)
            if len(fitting) < len(events):
                self._marks.drop(key)
            if fitting:
                found[key] = fitting
        return found

    def _answer(self) -> AbstractAsyncContextManager[None]:
        return self._health.answers(STORE, 2 * _TIMEOUT_S)


def _name(prefix: bytes, *parts: str) -> bytes:
    return prefix + _digest(*parts).hex().encode()


def _digest(*parts: str) -> bytes:
    return blake2b("\0".join(parts).encode(errors="surrogatepass"), digest_size=16).digest()


def _member(session_id: str) -> bytes:
    return json.dumps(session_id).encode()
