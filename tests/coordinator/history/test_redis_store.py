"""Turns in a real Redis: shared by processes, bounded in time, and never in the way."""

import logging
from array import array
from collections.abc import AsyncIterator, Iterator
from hashlib import blake2b
from typing import Any, cast

import pytest
from redis.asyncio import Redis

from tests.redis_server import free_port, redis_server
from tokenwire.coordinator.history.open_store import open_store
from tokenwire.coordinator.history.redis_store import RedisStore
from tokenwire.coordinator.history.settings import HistorySettings
from tokenwire.coordinator.history.shared_store import SharedStore
from tokenwire.coordinator.history.store import HistoryStore, MemoryStore
from tokenwire.coordinator.history.turns import Reasoning, Turn
from tokenwire.errors import InvalidRequest

pytestmark = pytest.mark.npm

PASSWORD = "quite secret"
ROOT = Turn(array("I", range(50)), reasoning=(Reasoning(1, b"0123456789abcdef", ours=False),))
REPLY = Turn(array("I", [7, 4_000_000_000]), ROOT, "token", (Reasoning(3, b"fedcba9876543210", ours=True),))


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """Run a Redis that asks for a password."""
    port = free_port()
    with redis_server(port, PASSWORD):
        yield f"redis://127.0.0.1:{port}/0"


@pytest.fixture
async def redis(url: str) -> AsyncIterator["Redis"]:
    """Return a client of an empty Redis."""
    async with Redis.from_url(url, password=PASSWORD) as client:
        await client.flushall()
        yield client


def store_of(url: str, **settings: float) -> RedisStore:
    """Return a store in this Redis."""
    return RedisStore(HistorySettings(store_url=url, store_password=PASSWORD, **settings))  # type: ignore[arg-type]


async def written(url: str, keys: list[bytes], turn: Turn, **settings: float) -> None:
    """Write a turn as another process would."""
    store = store_of(url, **settings)
    store.put(keys, turn)
    await store.close()


async def found(store: HistoryStore, key: bytes) -> Turn | None:
    """Look for one turn."""
    return (await store.find([key]))[0]


async def test_another_process_finds_what_was_kept(url: str, redis: "Redis") -> None:
    """Ids, endings and reasoning come back as they were, under each of the keys."""
    await written(url, [b"one", b"other"], REPLY)
    store = store_of(url)

    turns = await store.find([b"none", b"other", b"one"])

    assert turns[0] is None
    for turn in turns[1:]:
        assert turn is not None
        assert [(t.token_ids, t.ending, t.reasoning) for t in turn.chain()] == [
            (t.token_ids, t.ending, t.reasoning) for t in REPLY.chain()
        ]
    await store.close()


async def test_what_turns_have_in_common_is_written_once(url: str, redis: "Redis") -> None:
    """A conversation of many turns takes what is new in each; a prompt that was given twice is one."""
    await written(url, [b"a"], REPLY)
    before = len(await redis.keys("*"))
    await written(url, [b"b"], Turn(array("I", [9]), REPLY))
    await written(url, [b"c"], Turn(array("I", [8]), Turn(array("I", range(50)), reasoning=ROOT.reasoning)))

    assert len(await redis.keys("*")) - before == 4


async def test_a_turn_that_cannot_be_written_holds_up_no_other(
    url: str, redis: "Redis", caplog: pytest.LogCaptureFixture
) -> None:
    """Such as one that states more reasoning than its form has room for."""
    stated = Reasoning(1, b"0123456789abcdef", ours=False)
    store = store_of(url)
    store.put([b"odd"], Turn(array("I", [1]), reasoning=(stated,) * 300))
    store.put([b"good"], REPLY)
    await store.close()

    store = store_of(url)
    assert await found(store, b"odd") is None
    assert await found(store, b"good") is not None
    assert "not written" in caplog.text
    await store.close()


async def test_everything_expires(url: str, redis: "Redis") -> None:
    """Each key has a time to live, which a use begins anew; a turn that is gone is a miss for those behind it."""
    await written(url, [b"key"], REPLY, ttl_s=50)
    names = await redis.keys("*")
    assert all([0 < await redis.ttl(name) <= 50 for name in names])
    store = store_of(url, ttl_s=90)

    await store.find([b"key"])
    assert all([await redis.ttl(name) > 50 for name in names])
    for name in names:
        if await redis.strlen(name) > 200:
            await redis.delete(name)  # the prompt
    assert await found(store, b"key") is None
    await store.close()


async def test_processes_share_what_they_keep(url: str, redis: "Redis") -> None:
    """Redis is asked where the end of a conversation is not known here, and what it says is kept here as well."""
    own = MemoryStore(1 << 20, 60)
    store = SharedStore(own, store_of(url))
    await written(url, [b"new"], REPLY)
    store.put([b"old"], ROOT)

    new, old = await store.find([b"new", b"old"])

    assert new is not None
    assert old is ROOT
    assert await found(own, b"new") is new
    await redis.flushall()
    assert await found(store, b"new") is new
    await store.close()


async def test_a_redis_that_fails_is_a_miss_and_one_line_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    """No request fails for it; what this process knows itself is still found."""
    caplog.set_level(logging.WARNING)
    store = open_store(HistorySettings(store_url=f"redis://127.0.0.1:{free_port()}", store_password=PASSWORD))
    for _ in range(3):
        store.put([b"key"], REPLY)
        assert await found(store, b"other") is None
        assert await found(store, b"key") is REPLY
    await store.close()

    assert len([record for record in caplog.records if "does not answer" in record.message]) == 1
    assert PASSWORD not in caplog.text


async def test_a_wrong_password_is_a_miss_too(url: str, caplog: pytest.LogCaptureFixture) -> None:
    """The log says what Redis said, and not the password."""
    store = RedisStore(HistorySettings(store_url=url, store_password="wrong one"))

    assert await found(store, b"key") is None
    assert "does not answer" in caplog.text
    assert "wrong one" not in caplog.text
    await store.close()


@pytest.mark.parametrize("position", [0, 1, 2, 10, -1])
async def test_a_changed_byte_is_a_miss_and_no_pause(
    url: str, redis: "Redis", caplog: pytest.LogCaptureFixture, position: int
) -> None:
    """Wherever it is: wrong ids would be worse than none. What is whole is found at once."""
    await written(url, [b"key"], REPLY)
    names: list[Any] = await redis.keys("*")
    for name in names:
        if name.endswith(b":key"):
            continue
        value = bytearray(cast("bytes", await redis.get(name)))
        value[position] ^= 0xFF
        await redis.set(name, bytes(value))
    await written(url, [b"whole"], Turn(array("I", [5])))
    store = store_of(url)

    assert await found(store, b"key") is None
    assert await found(store, b"whole") is not None
    assert not caplog.records
    await store.close()


@pytest.mark.parametrize("value", [b"\x09\x00\x05\x00\x00\x00", b"\x00\x00\x05", b"\x00\x05", b"\x00", b""])
async def test_what_a_later_version_wrote_is_a_miss(url: str, redis: "Redis", value: bytes) -> None:
    """An ending that nobody here knows, or another form, under the very name that it should have."""
    name = blake2b(value, digest_size=16).digest()
    await redis.set(b"tokenwire:history:1:" + name, value)
    await redis.set(b"tokenwire:history:1:key", name)
    store = store_of(url)

    assert await found(store, b"key") is None
    await store.close()


async def test_what_others_wrote_into_redis_is_a_miss(url: str, redis: "Redis") -> None:
    """Bytes that no turn has are not taken for one."""
    store = store_of(url)
    await written(url, [b"key"], REPLY)
    for name in await redis.keys("*"):
        await redis.set(name, b"\x09")

    assert await found(store, b"key") is None
    await store.close()


@pytest.mark.parametrize("url", ["redis://:secret@host:1", "http://host:1", "host:1"])
def test_a_url_must_be_redis_and_hold_no_password(url: str) -> None:
    """The message names the option and never repeats the URL."""
    with pytest.raises(InvalidRequest, match="--history-store must") as raised:
        HistorySettings(store_url=url)
    assert "secret" not in raised.value.message
