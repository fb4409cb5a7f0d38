"""The inputs that a plain vLLM server pools: those of one command are one request."""

import asyncio
import uuid
from collections.abc import Iterable
from dataclasses import dataclass

from tokenwire.coordinator.fleet.transport.vllm_http.health import ServerHealth
from tokenwire.coordinator.fleet.transport.vllm_http.http_client import VllmHttpClient
from tokenwire.coordinator.fleet.transport.vllm_http.pool_request import pool_body_of, pool_path, results_of
from tokenwire.coordinator.fleet.transport.vllm_http.sequences import Spawn
from tokenwire.coordinator.fleet.transport.vllm_http.token_buffer import TokenBuffer
from tokenwire.v1 import inference_pb2 as pb

_RESULTS_BETWEEN_YIELDS = 256


@dataclass(slots=True, eq=False)
class _Batch:
    pool: pb.Pool
    open: set[int]
    """Slots without a result."""
    task: asyncio.Task[None] | None = None


class PooledBatches:
    """Has inputs pooled, and puts their results into frames."""

    def __init__(self, server: VllmHttpClient, frames: TokenBuffer, health: ServerHealth, spawn: Spawn) -> None:
        """`spawn` runs a task until the session ends."""
        self._server = server
        self._frames = frames
        self._health = health
        self._spawn = spawn
        self._by_slot: dict[int, _Batch] = {}
        self.model = ""
        """The name that requests have for the model, once it is known."""

    def begin(self, pool: pb.Pool) -> None:
        """Send the inputs of a command."""
        batch = _Batch(pool, set(pool.slots))
        self._by_slot.update(dict.fromkeys(pool.slots, batch))
        batch.task = self._spawn(self._pool(batch))

    def abort(self, slots: Iterable[int]) -> None:
        """Abort those of the slots that are inputs. The server computes a batch for as long as one is needed."""
        for slot in slots:
            batch = self._by_slot.get(slot)
            if batch is not None and self._end(batch, slot):
                self._frames.finish(pb.Finish(slot=slot, reason=pb.FINISH_REASON_ABORT))
                if not batch.open and batch.task is not None:
                    batch.task.cancel()  # which closes the connection, and the server aborts the request

    def abort_by_id(self, request_ids: frozenset[str] | None) -> int:
        """Abort requests by their ids, None: all; return the number of inputs."""
        by_slot = list(self._by_slot.items())
        found = [slot for slot, batch in by_slot if request_ids is None or batch.pool.request_id in request_ids]
        self.abort(found)
        return len(found)

    async def _pool(self, batch: _Batch) -> None:
        pool = batch.pool
        try:
            body = pool_body_of(pool, f"{pool.request_id}-{uuid.uuid4().hex[:12]}", self.model)
            content = await self._server.content(pool_path(pool), body, pool.trace_headers)
            for position, finish in enumerate(results_of(pool, content)):
                if self._end(batch, finish.slot):
                    self._frames.finish(finish)
                if position % _RESULTS_BETWEEN_YIELDS == _RESULTS_BETWEEN_YIELDS - 1:
                    await asyncio.sleep(0)
        except Exception as error:
            if (failure := await self._health.failure(error)) is not None:
                self._frames.fail([slot for slot in pool.slots if self._end(batch, slot)], failure)

    def _end(self, batch: _Batch, slot: int) -> bool:
        """End a slot; return whether it was open."""
        if self._by_slot.get(slot) is not batch or slot not in batch.open:
            return False
        del self._by_slot[slot]
        batch.open.discard(slot)
        return True
