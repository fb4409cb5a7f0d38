"""Turns in a real Redis are shared by processes, expire, and never block requests."""

import asyncio
import contextlib
import logging
from array import array
from hashlib import blake2b
from typing import Any, cast

import pytest
from redis.asyncio import Redis

from tests.ports import free_port
from tests.redis_server import PASSWORD
from tokenwire.coordinator.history.open_store import SharedStore, open_store
from tokenwire.coordinator.history.redis_store import RedisStore
from tokenwire.coordinator.history.settings import HistorySettings
from tokenwire.coordinator.history.store import HistoryStore, MemoryStore
from tokenwire.coordinator.history.turns import MessageReasoning, Turn
from tokenwire.coordinator.shared_redis import TIMEOUT_S

pytestmark = pytest.mark.npm

ROOT = Turn(array("I", range(50)), reasoning=(MessageReasoning(1, b"0123456789abcdef", generated=False),))
REPLY = Turn(array("I", [7, 4_000_000_000]), ROOT, "token", (MessageReasoning(3, b"fedcba9876543210", generated=True),))


def store_of(redis_url: str, **settings: float) -> RedisStore:
    """Return a store for this Redis."""
    return RedisStore(HistorySettings(store_url=redis_url, store_password=PASSWORD, **settings))  # type: ignore[arg-type]


async def written(redis_url: str, keys: list[bytes], turn: Turn, **settings: float) -> None:
    """Write a turn as another process."""
    store = store_of(redis_url, **settings)
    store.put(keys, turn)
    await store.close()


async def found(store: HistoryStore, key: bytes) -> Turn | None:
    """Return one turn."""
    return (await store.find([key]))[0]


async def test_another_process_finds_stored_turns(redis_url: str, redis: "Redis") -> None:
    """Ids, endings and reasoning are restored under each of the keys."""
    await written(redis_url, [b"one", b"other"], REPLY)
    store = store_of(redis_url)

    turns = await store.find([b"none", b"other", b"one"])

    assert turns[0] is None
    for turn in turns[1:]:
        assert turn is not None
        assert [(t.token_ids, t.ending, t.reasoning) for t in turn.chain()] == [
            (t.token_ids, t.ending, t.reasoning) for t in REPLY.chain()
        ]
    await store.close()


async def test_a_request_does_not_wait_for_all_answers_of_a_slow_redis() -> None:
    """Each comes in time, but a new connection has several: it is treated as empty before the lookup has begun."""
    commands, ended = list[bytes](), asyncio.Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while command := await reader.read(4096):
            commands.append(command)
            await asyncio.sleep(0.8 * TIMEOUT_S)
            writer.write(b"%1\r\n$5\r\nproto\r\n:3\r\n" if b"HELLO" in command else b"+OK\r\n")
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()
        ended.set()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        store = RedisStore(HistorySettings(store_url=f"redis://127.0.0.1:{server.sockets[0].getsockname()[1]}"))

        assert await found(store, b"key") is None
        assert not any(b"MGET" in command for command in commands)
        await store.close()
        await asyncio.wait_for(ended.wait(), 5)


async def test_shared_turns_are_written_once(redis_url: str, redis: "Redis") -> None:
    """Each turn of a conversation stores only its new ids; a repeated prompt is stored once."""
    await written(redis_url, [b"a"], REPLY)
    before = len(await redis.keys("*"))
    await written(redis_url, [b"b"], Turn(array("I", [9]), REPLY))
    await written(redis_url, [b"c"], Turn(array("I", [8]), Turn(array("I", range(50)), reasoning=ROOT.reasoning)))

    assert len(await redis.keys("*")) - before == 4


async def test_a_turn_that_cannot_be_written_does_not_block_others(
    redis_url: str, redis: "Redis", caplog: pytest.LogCaptureFixture
) -> None:
    """Such as one with more reasoning than the format can hold."""
    stated = MessageReasoning(1, b"0123456789abcdef", generated=False)
    store = store_of(redis_url)
    store.put([b"odd"], Turn(array("I", [1]), reasoning=(stated,) * 300))
    store.put([b"good"], REPLY)
    await store.close()

    store = store_of(redis_url)
    assert await found(store, b"odd") is None
    assert await found(store, b"good") is not None
    assert "cannot write a turn to Redis" in caplog.text
    await store.close()


async def test_keys_and_turns_expire(redis_url: str, redis: "Redis") -> None:
    """Each key has a TTL, which a use restarts; an expired turn is a miss for those that continue it."""
    await written(redis_url, [b"key"], REPLY, ttl_s=50)
    names = await redis.keys("*")
    assert all([0 < await redis.ttl(name) <= 50 for name in names])
    store = store_of(redis_url, ttl_s=90)

    await store.find([b"key"])
    assert all([await redis.ttl(name) > 50 for name in names])
    for name in names:
        if await redis.strlen(name) > 200:
            await redis.delete(name)  # the prompt
    assert await found(store, b"key") is None
    await store.close()


async def test_processes_share_turns(redis_url: str, redis: "Redis") -> None:
    """Redis is queried if the end of a conversation is unknown here, and its turns are then also stored here."""
    own = MemoryStore(1 << 20, 60)
    store = SharedStore(own, store_of(redis_url))
    await written(redis_url, [b"new"], REPLY)
    store.put([b"old"], ROOT)

    new, old = await store.find([b"new", b"old"])

    assert new is not None
    assert old is ROOT
    assert await found(own, b"new") is new
    await redis.flushall()
    assert await found(store, b"new") is new
    await store.close()


async def test_a_failing_redis_is_a_miss_and_one_log_record(caplog: pytest.LogCaptureFixture) -> None:
    """No request fails; this process's own turns are still found."""
    caplog.set_level(logging.WARNING)
    store = open_store(HistorySettings(store_url=f"redis://127.0.0.1:{free_port()}", store_password=PASSWORD))
    for _ in range(3):
        store.put([b"key"], REPLY)
        assert await found(store, b"other") is None
        assert await found(store, b"key") is REPLY
    await store.close()

    assert len([record for record in caplog.records if "Redis failed" in record.message]) == 1
    assert PASSWORD not in caplog.text


async def test_a_connection_that_was_closed_while_idle_is_no_failure(
    redis_url: str, redis: "Redis", caplog: pytest.LogCaptureFixture
) -> None:
    """Redis closes idle connections, as load balancers do: the next lookup and the next write open another."""
    store = store_of(redis_url)
    await written(redis_url, [b"key"], REPLY)
    assert await found(store, b"key") is not None
    await redis.client_kill_filter(_type="normal", skipme=True)
    assert await found(store, b"key") is not None

    await redis.client_kill_filter(_type="normal", skipme=True)
    store.put([b"next"], REPLY)
    await store.close()
    store = store_of(redis_url)
    assert await found(store, b"next") is not None
    assert not caplog.records
    await store.close()


async def test_a_wrong_password_is_a_miss_too(redis_url: str, caplog: pytest.LogCaptureFixture) -> None:
    """The log has Redis's error, and not the password."""
    store = RedisStore(HistorySettings(store_url=redis_url, store_password="wrong one"))

    assert await found(store, b"key") is None
    assert "Redis failed" in caplog.text
    assert "wrong one" not in caplog.text
    await store.close()


@pytest.mark.parametrize("position", [0, 1, 2, 10, -1])
async def test_a_changed_byte_is_a_miss_and_no_pause(
    redis_url: str, redis: "Redis", caplog: pytest.LogCaptureFixture, position: int
) -> None:
    """At any position: wrong ids would be worse than none. Intact turns are found at once."""
    await written(redis_url, [b"key"], REPLY)
    names: list[Any] = await redis.keys("*")
    for name in names:
        if name.endswith(b":key"):
            continue
        value = bytearray(cast("bytes", await redis.get(name)))
        value[position] ^= 0xFF
        await redis.set(name, bytes(value))
    await written(redis_url, [b"whole"], Turn(array("I", [5])))
    store = store_of(redis_url)

    assert await found(store, b"key") is None
    assert await found(store, b"whole") is not None
    assert not caplog.records
    await store.close()


@pytest.mark.parametrize("value", [b"\x09\x00\x05\x00\x00\x00", b"\x00\x00\x05", b"\x00\x05", b"\x00", b""])
async def test_turns_of_a_later_version_are_a_miss(redis_url: str, redis: "Redis", value: bytes) -> None:
    """An unknown ending, or another format, under a valid name."""
    name = blake2b(value, digest_size=16).digest()
    await redis.set(b"tokenwire:history:1:" + name, value)
    await redis.set(b"tokenwire:history:1:key", name)
    store = store_of(redis_url)

    assert await found(store, b"key") is None
    await store.close()


async def test_foreign_values_in_redis_are_a_miss(redis_url: str, redis: "Redis") -> None:
    """Bytes that are not a turn are ignored."""
    store = store_of(redis_url)
    await written(redis_url, [b"key"], REPLY)
    for name in await redis.keys("*"):
        await redis.set(name, b"\x09")

    assert await found(store, b"key") is None
    await store.close()
