"""Responses in Redis, for several coordinators: written in the background, in order; and who runs which of them.

A deleted response leaves an empty value, so that no process brings back a copy of its own.
"""

import asyncio
import contextlib
import logging
from collections.abc import Collection, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from hashlib import blake2b

from tokenwire.coordinator.response_store.settings import ResponseStoreSettings
from tokenwire.coordinator.response_store.store import ResponseKey
from tokenwire.coordinator.response_store.stored_response import StoredResponse, pack, unpack
from tokenwire.coordinator.shared_redis import PAUSE_S, TIMEOUT_S, RedisHealth, is_away, open_redis

log = logging.getLogger(__name__)

_PREFIX = b"tokenwire:responses:1:"
_RUNS = b"tokenwire:responses-running:1:"
_STOP = b"tokenwire:responses-stop:1:"
_NAME_BYTES = 16
_DELETED = b""
_LEASE_S = 15
"""How long a process that says nothing is taken for alive: several renewals."""
_STOP_S = 60
_WAIT_S = 2 * TIMEOUT_S
"""A request waits no longer."""
_WRITE_S = 5.0
"""Nobody waits for a write, and that of a response of many MB takes longer than a request may wait."""
_FIND_S = 2.0
"""To read one of many MB takes long, too, where others are read and written: Redis is there, and answers."""
_MAX_QUEUED = 1024
_PUT = """
if redis.call('exists', KEYS[1]) == 1 and redis.call('strlen', KEYS[1]) == 0 then return 0 end
redis.call('set', KEYS[1], ARGV[1], 'EX', ARGV[2])
return 1
"""
"""Stores a response that was not deleted."""


@dataclass(frozen=True, slots=True)
class _Write:
    key: ResponseKey
    value: bytes
    runs: bool = False
    """Whether this process runs the response."""
    done: "asyncio.Future[None] | None" = None
    """Of a deletion, which somebody waits for."""


class Deleted:
    """Found in place of a response that was deleted."""


class RedisResponseStore:
    """Reads, writes and deletes responses. Whoever cannot be answered gets Unavailable: within half a second of
    its turn, or two where it reads responses.
    """

    def __init__(self, settings: ResponseStoreSettings) -> None:
        """Configure the client; it connects on first use."""
        assert settings.store_url is not None
        self._ttl_s = max(1, round(settings.ttl_s))
        self._max_queued_bytes = settings.max_bytes
        self._redis = open_redis(settings.store_url, settings.store_password)
        self._redis_for_values = open_redis(settings.store_url, settings.store_password, _WRITE_S)
        self._health = RedisHealth("using only this process's responses")
        self._queue: asyncio.Queue[_Write] = asyncio.Queue(_MAX_QUEUED)
        self._queued_bytes = 0
        self._writer: asyncio.Task[None] | None = None

    async def find(self, keys: Sequence[ResponseKey]) -> list[StoredResponse | type[Deleted] | None]:
        """Return each response, and keep it for longer. Raises Unavailable."""
        async with self._answer(_FIND_S), self._redis_for_values.pipeline(transaction=False) as pipe:
            for key in keys:
                pipe.getex(_PREFIX + _name(key), ex=self._ttl_s)
            found = await pipe.execute()
        return [_found(value, key) for value, key in zip(found, keys, strict=True)]

    def put(self, response: StoredResponse) -> None:
        """Queue a response for writing, once Redis is there; beyond the queue's size it is dropped."""
        self._enqueue(_Write((response.tenant, response.id), pack(response), not response.has_ended))

    async def settle(self) -> None:
        """Wait until what is queued is written, or for half a second; not at all if Redis is away."""
        if not self._health.is_paused:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._queue.join(), _WAIT_S)

    async def delete(self, key: ResponseKey) -> None:
        """Delete a response, after it was written. Raises Unavailable."""
        done = asyncio.get_running_loop().create_future()
        async with self._answer():
            if not self._enqueue(_Write(key, _DELETED, done=done)):
                raise TimeoutError
            await done

    async def renew(self, keys: Collection[ResponseKey]) -> list[ResponseKey]:
        """Renew the leases of responses; return those that are to stop, or were deleted. Raises Unavailable."""
        async with self._answer(), self._redis.pipeline(transaction=False) as pipe:
            for key in keys:
                name = _name(key)
                pipe.set(_RUNS + name, b"1", ex=_LEASE_S)
                pipe.exists(_STOP + name)
                pipe.getrange(_PREFIX + name, 0, 0)
                pipe.exists(_PREFIX + name)
            answers = await pipe.execute()
        rows = zip(keys, answers[1::4], answers[2::4], answers[3::4], strict=True)
        return [key for key, stop, first, exists in rows if stop or (exists and first == _DELETED)]

    async def runs(self, key: ResponseKey) -> bool:
        """Return whether a process has the lease of a response. Raises Unavailable."""
        async with self._answer():
            return bool(await self._redis.exists(_RUNS + _name(key)))

    async def stop(self, key: ResponseKey) -> None:
        """Leave a note for the process that runs a response. Raises Unavailable."""
        async with self._answer():
            await self._redis.set(_STOP + _name(key), b"1", ex=_STOP_S)

    async def flush(self) -> None:
        """Write what is queued, if Redis responds."""
        try:
            await asyncio.wait_for(self._queue.join(), PAUSE_S)
        except TimeoutError:
            log.warning("responses are not written yet")

    async def close(self) -> None:
        """Write what is queued, if Redis responds, and disconnect."""
        if self._writer is not None:
            await self.flush()
            self._writer.cancel()
        await asyncio.gather(self._redis.aclose(), self._redis_for_values.aclose())

    def _answer(self, wait_s: float = _WAIT_S) -> AbstractAsyncContextManager[None]:
        return self._health.answers("The store of responses", wait_s)

    def _enqueue(self, write: _Write) -> bool:
        """Queue a write; return whether there was room for it."""
        if self._writer is None:
            self._writer = asyncio.create_task(self._write_all())
        if self._queue.full() or self._queued_bytes + len(write.value) > self._max_queued_bytes:
            return False
        self._queued_bytes += len(write.value)
        self._queue.put_nowait(write)
        return True

    async def _write_all(self) -> None:
        while True:
            write = await self._queue.get()
            try:
                while not await self._try(write):
                    await self._health.resume()
            finally:
                self._queued_bytes -= len(write.value)
                self._queue.task_done()

    async def _try(self, write: _Write) -> bool:
        """Write; return False if Redis is away, so that others would not hear of it."""
        try:
            await self._write(write)
        except Exception as error:  # no answer of a server may end the writer
            self._health.on_error(error)
            return not is_away(error)
        self._health.on_success()
        return True

    async def _write(self, write: _Write) -> None:
        redis, name = self._redis_for_values, _PREFIX + _name(write.key)
        if write.runs:
            await redis.set(_RUNS + _name(write.key), b"1", ex=_LEASE_S)
            await redis.delete(_STOP + _name(write.key))  # left for an earlier one with a client's own id
        if write.done is None:
            await redis.eval(_PUT, 1, name, write.value, self._ttl_s)
            return
        await redis.set(name, _DELETED, ex=self._ttl_s)
        if not write.done.done():
            write.done.set_result(None)


def _found(value: bytes | None, key: ResponseKey) -> StoredResponse | type[Deleted] | None:
    """Return what was found under a key; nothing that is another tenant's, whatever Redis answers."""
    if value is None or value == _DELETED:
        return None if value is None else Deleted
    response = unpack(value)
    return response if response is not None and (response.tenant, response.id) == key else None


def _name(key: ResponseKey) -> bytes:
    return blake2b("\0".join(key).encode(), digest_size=_NAME_BYTES).digest()
