"""The in-memory store is bounded in bytes and time; the tenant that has most of it loses its oldest sessions."""

import sys
from collections import Counter
from types import FrameType

import pytest

from tests.clock import Clock
from tokenwire.coordinator.trajectories.session_limit import RESERVE_BYTES, SessionLimit
from tokenwire.coordinator.trajectories.store import MemoryTrajectoryStore, SessionKey

BIG = b"x" * 20_000


class MemoryStoreInTime(MemoryTrajectoryStore):
    """A store of 100 KB whose clock does not run by itself."""

    def __init__(self) -> None:
        self.dropped_keys: list[SessionKey] = []
        self.clock = Clock()
        super().__init__(100_000, 60.0, self.dropped_keys.append, self.clock, self.clock)


async def test_events_come_back_in_order() -> None:
    """Only to their tenant."""
    store = MemoryStoreInTime()
    for event in (b"one", b"two"):
        store.append(("acme", "s"), "acme", event)

    assert await store.read(("acme", "s")) == [b"one", b"two"]
    assert [await store.size_of((tenant, "s")) for tenant in ("acme", "other")] == [6, 0]
    assert await store.read(("other", "s")) == []
    assert [session.id for session in await store.sessions("acme")] == ["s"]
    assert await store.sessions("other") == []


async def test_the_newest_session_is_listed_first() -> None:
    """By when they began."""
    store = MemoryStoreInTime()
    for name in ("a", "b"):
        store.append(("acme", name), "acme", b"x")
        store.clock.now += 1
    store.append(("acme", "a"), "acme", b"x")

    assert [session.id for session in await store.sessions("acme")] == ["b", "a"]
    assert [session.id for session in await store.sessions("acme", 1)] == ["b"]
    assert [session.id for session in await store.sessions("acme", since=store.clock.now - 1)] == ["b"]


async def test_to_list_sessions_takes_no_longer_with_more_of_them() -> None:
    """Anybody can make many, and a list of one is asked for by a hundred bytes: no session is looked at for it."""
    store = MemoryStoreInTime()
    looked_at = Counter[str]()

    def trace(frame: FrameType, event: str, argument: object) -> None:
        looked_at[event] += 1

    counts = []
    for known in (30, 60):
        while len(store) < known:
            store.append(("acme", str(len(store))), "acme", b"x")
        sys.setprofile(trace)
        listed = await store.sessions("acme", 1)
        sys.setprofile(None)
        assert [session.id for session in listed] == [str(known - 1)]
        counts.append(looked_at.total())
        looked_at.clear()
    assert counts[0] == counts[1]


async def test_a_session_expires_after_its_last_event() -> None:
    """And says so, since later turns must not refer to it."""
    store = MemoryStoreInTime()
    store.append(("acme", "a"), "acme", b"x")
    store.append(("acme", "b"), "acme", b"x")
    store.clock.now += 50
    store.append(("acme", "a"), "acme", b"x")
    store.clock.now += 20

    assert await store.read(("acme", "b")) == []
    assert len(await store.read(("acme", "a"))) == 2
    assert store.dropped_keys == [("acme", "b")]
    assert store.dropped.sessions == 0


async def test_who_has_most_loses_the_session_that_was_used_least_recently(caplog: pytest.LogCaptureFixture) -> None:
    """However little others use. The log says so, once a minute."""
    store = MemoryStoreInTime()
    store.append(("", "small"), "1.1.1.1", b"x")
    for name in ("a", "b", "c", "a", "d"):
        store.append(("", name), "2.2.2.2", BIG)

    assert store.dropped_keys == [("", "b")]
    assert store.dropped.sessions == 1
    assert len(store) == 4
    assert store.size <= 100_000
    for name in ("e", "f"):
        store.append(("", name), "2.2.2.2", BIG)
    warning = "--trajectories-mb is full: sessions dropped since the start: 1"
    assert [record.getMessage() for record in caplog.records] == [warning]


async def test_what_does_not_fit_into_its_session_is_dropped() -> None:
    """Later turns must not refer to it; the session is still read and rewarded, and begins anew once it is deleted."""
    key, dropped = ("acme", "a"), list[SessionKey]()
    store = MemoryTrajectoryStore(100_000, 60.0, dropped.append, limit=SessionLimit(10))
    for event in (b"x" * 6, b"y" * 6, b"z" * 4):
        store.append(key, "acme", event)

    await store.put(key, "acme", b"reward")

    assert await store.read(key) == [b"x" * 6, b"z" * 4, b"reward"]
    assert (dropped, store.dropped.events) == ([key], 1)
    assert store.most_session_bytes == 10 + RESERVE_BYTES
    await store.delete(key)
    store.append(key, "acme", b"y" * 6)
    assert await store.read(key) == [b"y" * 6]


async def test_a_deleted_session_is_gone() -> None:
    """With all that it took."""
    store = MemoryStoreInTime()
    store.append(("acme", "a"), "acme", BIG)

    assert await store.delete(("acme", "a"))
    assert not await store.delete(("acme", "a"))
    assert (store.size, len(store)) == (0, 0)
