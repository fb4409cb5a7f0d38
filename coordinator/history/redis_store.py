"""Stores turns in Redis for several coordinators: a key lists the turns of its conversation, each stored once.

Redis never blocks requests: a timeout is a miss, and after an error Redis is skipped for a while.
"""

import asyncio
import logging
import struct
from array import array
from collections.abc import Sequence
from hashlib import blake2b

from redis.exceptions import RedisError

from tokenwire.coordinator.history.settings import HistorySettings
from tokenwire.coordinator.history.turns import Ending, MessageReasoning, Turn
from tokenwire.coordinator.shared_redis import PAUSE_S, TIMEOUT_S, RedisHealth, open_redis

log = logging.getLogger(__name__)

_PREFIX = b"tokenwire:history:1:"
_NAME_BYTES = 16
_HEAD = struct.Struct("<BB")
_REASONING = struct.Struct("<I?16s")
_ENDINGS: tuple[Ending, ...] = ("token", "stop", "cut", "unknown")

_MAX_QUEUED = 1024
_LOOKUP_S = 2 * TIMEOUT_S
"""A request waits no longer for a lookup, which has two answers, and more if it opens a connection."""


class RedisStore:
    """A HistoryStore that writes in the background, in order; writes beyond the queue's size are dropped."""

    def __init__(self, settings: HistorySettings) -> None:
        """Configure the client; it connects on first use."""
        assert settings.store_url is not None
        self._ttl_s = max(1, round(settings.ttl_s))
        self._redis = open_redis(settings.store_url, settings.store_password)
        self._health = RedisHealth("using only this process's history")
        self._queue: asyncio.Queue[tuple[Sequence[bytes], Turn]] = asyncio.Queue(_MAX_QUEUED)
        self._writer: asyncio.Task[None] | None = None
        self._late: set[asyncio.Task[list[Turn | None]]] = set()
        """Lookups that nobody waits for any longer."""

    async def find(self, keys: Sequence[bytes], share: str = "") -> Sequence[Turn | None]:
        """Return the turn of each key."""
        misses: list[Turn | None] = [None] * len(keys)
        if not keys:
            return misses
        try:
            async with self._health.turn():
                if self._health.is_paused:
                    return misses
                found = await self._find_in_time(keys)
        except Exception as error:  # no server response may fail a request
            self._health.on_error(error)
            return misses
        self._health.on_success()
        return found

    def put(self, keys: Sequence[bytes], turn: Turn, share: str = "") -> None:
        """Queue a turn for writing."""
        if self._writer is None:
            self._writer = asyncio.create_task(self._write_all())
        if not self._queue.full():
            self._queue.put_nowait((keys, turn))

    async def close(self) -> None:
        """Write queued turns, if Redis responds, and disconnect."""
        if self._writer is not None:
            try:
                await asyncio.wait_for(self._queue.join(), PAUSE_S)
            except TimeoutError:
                log.warning("closing with unwritten turns")
            self._writer.cancel()
        late = list(self._late)
        for lookup in late:
            lookup.cancel()
        await asyncio.gather(*late, return_exceptions=True)
        await self._redis.aclose()

    async def _find_in_time(self, keys: Sequence[bytes]) -> list[Turn | None]:
        """Find within the time of its two answers. Raises TimeoutError, and the client's errors.

        A lookup that takes longer goes on without us: the next one needs the connection that it is opening.
        """
        lookup = asyncio.create_task(self._find(keys))
        done, _ = await asyncio.wait([lookup], timeout=_LOOKUP_S)
        if not done:
            self._late.add(lookup)
            lookup.add_done_callback(self._end_late)
            raise TimeoutError
        return lookup.result()

    def _end_late(self, lookup: "asyncio.Task[list[Turn | None]]") -> None:
        self._late.discard(lookup)
        if not lookup.cancelled() and lookup.exception() is not None:
            log.debug("a late lookup failed", exc_info=lookup.exception())

    async def _find(self, keys: Sequence[bytes]) -> list[Turn | None]:
        values = await self._redis.mget([_PREFIX + key for key in keys])
        listed = [_split(value) if isinstance(value, bytes) else [] for value in values]
        names = list(dict.fromkeys(name for each in listed for name in each))
        if not names:
            return [None] * len(keys)
        async with self._redis.pipeline(transaction=False) as pipe:
            for name in names:
                pipe.getex(_PREFIX + name, ex=self._ttl_s)
            for key, each in zip(keys, listed, strict=True):
                if each:
                    pipe.expire(_PREFIX + key, self._ttl_s)
            packed = dict(zip(names, await pipe.execute(), strict=False))
        turns: dict[bytes, Turn] = {}
        return [_chain(each, packed, turns) for each in listed]

    async def _write_all(self) -> None:
        while True:
            keys, turn = await self._queue.get()
            try:
                if not self._health.is_paused:
                    await self._write(keys, turn)
                    self._health.on_success()
            except (RedisError, OSError) as error:
                self._health.on_error(error)
            except Exception:  # only this turn cannot be written
                log.exception("cannot write a turn to Redis")
            finally:
                self._queue.task_done()

    async def _write(self, keys: Sequence[bytes], turn: Turn) -> None:
        packed = _packed(turn)
        async with self._redis.pipeline(transaction=False) as pipe:
            for name in packed:
                pipe.expire(_PREFIX + name, self._ttl_s)
            exist = await pipe.execute()
        async with self._redis.pipeline(transaction=False) as pipe:
            for (name, value), exists in zip(packed.items(), exist, strict=True):
                if not exists:
                    pipe.set(_PREFIX + name, value, ex=self._ttl_s)
            for key in keys:
                pipe.set(_PREFIX + key, b"".join(packed), ex=self._ttl_s)
            await pipe.execute()


def _packed(turn: Turn) -> dict[bytes, bytes]:
    """Return the turns of a chain as bytes, oldest first, by name: a digest of the turn and all before it."""
    named: dict[bytes, bytes] = {}
    name = b""
    for link in reversed(list(turn.chain())):
        stated = b"".join(_REASONING.pack(each.position, each.generated, each.digest) for each in link.reasoning)
        value = _HEAD.pack(_ENDINGS.index(link.ending), len(link.reasoning)) + stated + link.token_ids.tobytes()
        name = _name(name, value)
        named[name] = value
    return named


def _name(before: bytes, value: bytes) -> bytes:
    """Return the name of a turn after the turn named `before`, which is empty for the first."""
    return blake2b(before + value, digest_size=_NAME_BYTES).digest()


def _split(names: bytes) -> list[bytes]:
    return [names[start : start + _NAME_BYTES] for start in range(0, len(names), _NAME_BYTES)]


def _chain(names: Sequence[bytes], packed: dict[bytes, bytes | None], turns: dict[bytes, Turn]) -> Turn | None:
    """Return the last of these turns, None if one of them is missing or corrupt."""
    turn: Turn | None = None
    before = b""
    for name in names:
        value = packed.get(name)
        if value is None or (name not in turns and _name(before, value) != name):
            return None
        if name not in turns:
            try:
                turns[name] = _unpacked(value, turn)
            except (IndexError, ValueError, struct.error):
                return None  # the format of a later version
        turn, before = turns[name], name
    return turn


def _unpacked(value: bytes, parent: Turn | None) -> Turn:
    ending, count = _HEAD.unpack_from(value)
    start = _HEAD.size + count * _REASONING.size
    stated = (_REASONING.unpack_from(value, _HEAD.size + i * _REASONING.size) for i in range(count))
    reasoning = tuple(MessageReasoning(position, digest, generated) for position, generated, digest in stated)
    ids = array("I")
    ids.frombytes(value[start:])
    return Turn(ids, parent, _ENDINGS[ending], reasoning)
