"""What vLLM's engine process publishes of its prefix cache: configured, listened to and named here."""

import asyncio
import contextlib
import logging
import shutil
import tempfile
from pathlib import Path
from typing import Any

import msgspec
import zmq
import zmq.asyncio
from vllm.config.kv_events import KVEventsConfig
from vllm.distributed.kv_events import MEDIUM_GPU, AllBlocksCleared, BlockRemoved, BlockStored, KVEventBatch

from tokenwire.errors import EngineFailed
from tokenwire.prefix_hash import scope_of
from tokenwire.worker.block_hashes import BlockHashes
from tokenwire.worker.prefix_cache import CacheChange, HearCache

log = logging.getLogger(__name__)


class CacheEvents:
    """Subscribes to one engine process over a socket in a private directory."""

    def __init__(self, hear: HearCache) -> None:
        self._on_events = hear
        self._folder = Path(tempfile.mkdtemp(prefix="tokenwire-kv-"))
        self._endpoint = f"ipc://{self._folder}/events"
        self._names = BlockHashes()
        self._decode = msgspec.msgpack.Decoder(KVEventBatch).decode
        self._last: int | None = None
        self._task: asyncio.Task[None] | None = None

    def configure(self, parsed: Any) -> None:
        """Have an engine with these arguments publish. Raises EngineFailed where that is not possible."""
        if parsed.kv_events_config is not None:
            raise EngineFailed("--kv-events makes a --kv-events-config of its own: leave out either.")
        if parsed.data_parallel_size > 1:
            raise EngineFailed("--kv-events is not possible with several data-parallel ranks in one worker.")
        parsed.kv_events_config = KVEventsConfig(
            enable_kv_cache_events=True, publisher="zmq", endpoint=self._endpoint, topic=""
        )

    def start(self) -> None:
        """Begin to listen, when the engine runs."""
        self._task = asyncio.create_task(self._listen())

    async def stop(self) -> None:
        """Listen no more."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
        shutil.rmtree(self._folder, ignore_errors=True)

    async def _listen(self) -> None:
        context = zmq.asyncio.Context()
        socket = context.socket(zmq.SUB)
        try:
            socket.connect(self._endpoint)
            socket.subscribe(b"")
            while True:
                _, number, payload = await socket.recv_multipart()
                try:
                    self._take(int.from_bytes(number, "big"), self._decode(payload))
                except Exception:
                    log.exception("the engine's cache events cannot be read: it is taken for empty")
                    self._names.cleared()
                self._publish()
        finally:
            socket.close(linger=0)
            context.term()

    def _take(self, number: int, batch: KVEventBatch) -> None:
        if self._last is not None and number != self._last + 1:
            log.warning("cache events %d to %d were lost", self._last + 1, number - 1)
            self._names.cleared()
        self._last = number
        for event in batch.events:
            if isinstance(event, AllBlocksCleared):
                self._names.cleared()
            elif event.medium in (None, MEDIUM_GPU) and not event.group_idx:
                # Groups beyond the first are other layers' caches of the same tokens.
                self._take_blocks(event)

    def _take_blocks(self, event: BlockStored | BlockRemoved) -> None:
        if isinstance(event, BlockRemoved):
            self._names.removed(event.block_hashes)
            return
        scope = b""
        if event.parent_block_hash is None:
            keys = [key for key in (event.extra_keys or [None])[0] or () if key != event.lora_name]
            salt = keys[0] if keys else ""
            if len(keys) > 1 or not isinstance(salt, str):
                return  # images, which no name covers
            scope = scope_of(salt, event.lora_id or 0)
        self._names.stored(event.block_hashes, event.parent_block_hash, event.token_ids, scope)

    def _publish(self) -> None:
        if self._names.change:
            change, self._names.change = self._names.change, CacheChange()
            self._on_events(change)
