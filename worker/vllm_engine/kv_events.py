"""Configures vLLM's KV events, subscribes to them and maps them to prefix hashes."""

import asyncio
import contextlib
import logging
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import zmq
import zmq.asyncio
from vllm.config.kv_events import KVEventsConfig
from vllm.distributed.kv_events import MEDIUM_GPU, AllBlocksCleared, BlockRemoved, BlockStored, KVEventBatch

from tokenwire.errors import EngineFailed
from tokenwire.protocol.prefix_hash import media_marker, scope_of
from tokenwire.worker.cache.block_hashes import BlockHashes
from tokenwire.worker.cache.prefix_cache import CacheChange, OnKvEvents

log = logging.getLogger(__name__)


class KvEventSubscriber:
    """Subscriber to one engine process over a socket in a private directory."""

    def __init__(self, on_change: OnKvEvents) -> None:
        self._on_change = on_change
        self._folder = Path(tempfile.mkdtemp(prefix="tokenwire-kv-"))
        self._endpoint = f"ipc://{self._folder}/events"
        self._blocks = BlockHashes()
        self._decode = msgspec.msgpack.Decoder(KVEventBatch).decode
        self._last: int | None = None
        self._task: asyncio.Task[None] | None = None

    def configure(self, parsed: Any) -> None:
        """Enable KV events in the engine's arguments. Raises EngineFailed if that is not possible."""
        if parsed.kv_events_config is not None:
            raise EngineFailed("--kv-events and --kv-events-config are mutually exclusive.")
        if parsed.data_parallel_size > 1:
            raise EngineFailed("--kv-events does not support several data-parallel ranks in one worker.")
        parsed.kv_events_config = KVEventsConfig(
            enable_kv_cache_events=True, publisher="zmq", endpoint=self._endpoint, topic=""
        )

    def start(self) -> None:
        """Start receiving, once the engine runs."""
        self._task = asyncio.create_task(self._listen())

    async def stop(self) -> None:
        """Stop receiving."""
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
                    log.exception("cannot read KV events: assuming an empty cache")
                    self._blocks.on_cleared()
                self._publish()
        finally:
            socket.close(linger=0)
            context.term()

    def _take(self, number: int, batch: KVEventBatch) -> None:
        if self._last is not None and number != self._last + 1:
            log.warning("lost KV events %d to %d", self._last + 1, number - 1)
            self._blocks.on_cleared()
        self._last = number
        for event in batch.events:
            if isinstance(event, AllBlocksCleared):
                self._blocks.on_cleared()
            elif event.medium in (None, MEDIUM_GPU) and not event.group_idx:
                # Other groups are other layers' caches of the same tokens.
                self._take_blocks(event)

    def _take_blocks(self, event: BlockStored | BlockRemoved) -> None:
        if isinstance(event, BlockRemoved):
            self._blocks.on_removed(event.block_hashes)
            return
        extra_keys = event.extra_keys or []
        scope = b""
        if event.parent_block_hash is None:
            first = extra_keys[0] if extra_keys else None
            keys = [key for key in first or () if key != event.lora_name and not _is_media(key)]
            salt = keys[0] if keys else ""
            if len(keys) > 1 or not isinstance(salt, str):
                return  # embeddings of prompts, which prefix hashes do not cover
            scope = scope_of(salt, event.lora_id or 0)
        self._blocks.on_stored(event.block_hashes, event.parent_block_hash, _marked(event, extra_keys), scope)

    def _publish(self) -> None:
        if self._blocks.change:
            change, self._blocks.change = self._blocks.change, CacheChange()
            self._on_change(change)


def _is_media(key: object) -> bool:
    """Return whether an extra key of a block is an item of media: its name, and where it begins in the block."""
    return isinstance(key, tuple | list) and len(key) == 2 and isinstance(key[0], str) and isinstance(key[1], int)


def _marked(event: BlockStored, extra_keys: Sequence[Any]) -> list[int]:
    """Return the ids of blocks with the names of media where these begin, as coordinators name prefixes."""
    token_ids = list(event.token_ids)
    size = len(token_ids) // max(1, len(event.block_hashes))
    for number, keys in enumerate(extra_keys):
        for key in keys or ():
            if _is_media(key) and key[1] >= 0:  # else it began in an earlier block
                token_ids[number * size + key[1]] = media_marker(key[0])
    return token_ids
