"""vLLM's KV events become changes of prefix hashes."""

import asyncio
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest

from tests.lazily import Lazily
from tests.workers import until
from tokenwire.errors import EngineFailed
from tokenwire.protocol.prefix_hash import BLOCK_TOKENS, media_marker, prefix_hashes, scope_of
from tokenwire.worker.cache.prefix_cache import CacheChange

kv_events = Lazily("tokenwire.worker.vllm_engine.kv_events")
theirs = Lazily("vllm.distributed.kv_events")
msgspec = Lazily("msgspec")
zmq = Lazily("zmq")
zmq_asyncio = Lazily("zmq.asyncio")

pytestmark = pytest.mark.engine

PROMPT = list(range(BLOCK_TOKENS))
HASHES = set(prefix_hashes(PROMPT))


def arguments(**changed: Any) -> Any:
    """Return the engine arguments that matter here."""
    return SimpleNamespace(**{"kv_events_config": None, "data_parallel_size": 1, **changed})


def stored(**changed: Any) -> Any:
    """Return the event of a cached block."""
    usual = {"block_hashes": [1], "parent_block_hash": None, "token_ids": PROMPT, "block_size": BLOCK_TOKENS}
    return theirs.BlockStored(**{**usual, "lora_id": None, "medium": "GPU", "lora_name": None, **changed})


class Publisher:
    """An engine that publishes events, and what its subscriber made of them."""

    def __init__(self) -> None:
        self.received = CacheChange()
        self.subscriber = kv_events.KvEventSubscriber(self.received.add)
        parsed = arguments()
        self.subscriber.configure(parsed)
        self._context = zmq_asyncio.Context()
        self._socket = self._context.socket(zmq.XPUB)
        self._socket.bind(parsed.kv_events_config.endpoint)
        self._number = 0

    async def start(self) -> "Publisher":
        """Wait for the subscriber."""
        self.subscriber.start()
        assert await asyncio.wait_for(self._socket.recv(), 10) == b"\x01"
        return self

    async def publish(self, *events: Any, lost: int = 0) -> None:
        """Publish one batch, after some that were lost."""
        self._number += 1 + lost
        await self.send(msgspec.msgpack.encode(theirs.KVEventBatch(ts=0.0, events=list(events))))

    async def send(self, payload: bytes) -> None:
        """Send a message as it is."""
        await self._socket.send_multipart([b"", self._number.to_bytes(8, "big"), payload])

    async def stop(self) -> None:
        """Stop both."""
        await self.subscriber.stop()
        self._socket.close(linger=0)
        self._context.term()


@pytest.fixture
async def publisher() -> AsyncIterator[Publisher]:
    """A publisher with a subscriber."""
    made = Publisher()
    try:
        yield await made.start()
    finally:
        await made.stop()


async def test_blocks_are_stored_removed_and_cleared(publisher: Publisher) -> None:
    """Each under the hash of the prefix that ends with it."""
    await publisher.publish(stored())
    await until(lambda: publisher.received.stored == HASHES)
    await publisher.publish(theirs.BlockRemoved(block_hashes=[1], medium="GPU"))
    await until(lambda: publisher.received.removed == HASHES)
    await publisher.publish(theirs.AllBlocksCleared())
    await until(lambda: publisher.received.cleared)


async def test_a_salt_and_an_adapter_have_hashes_of_their_own(publisher: Publisher) -> None:
    """vLLM names the adapter among the keys too; embeddings of prompts have no hashes at all."""
    await publisher.publish(
        stored(block_hashes=[1], extra_keys=[("embeds",) * 2]),
        stored(block_hashes=[2], extra_keys=[("salt", "poet")], lora_id=3, lora_name="poet"),
    )

    await until(lambda: publisher.received.stored == set(prefix_hashes(PROMPT, scope_of("salt", 3))))


async def test_pictures_are_in_the_names_of_their_blocks(publisher: Publisher) -> None:
    """Two pictures at the same place of a prompt have names of their own, as coordinators compute them."""
    ids, digest = list(range(1, 2 * BLOCK_TOKENS + 1)), "ab" * 32
    await publisher.publish(
        stored(block_hashes=[1, 2], token_ids=ids, extra_keys=[((digest, 5),), ((digest, 5 - BLOCK_TOKENS), ("cd", 7))])
    )

    ids[5], ids[BLOCK_TOKENS + 7] = media_marker(digest), media_marker("cd")
    await until(lambda: publisher.received.stored == set(prefix_hashes(ids)))


async def test_caches_elsewhere_are_not_published(publisher: Publisher) -> None:
    """Neither in other memory nor of other layers: the same tokens come with the first group."""
    other = list(range(1, BLOCK_TOKENS + 1))
    await publisher.publish(
        stored(token_ids=other, medium="CPU"), stored(token_ids=other, group_idx=1), stored(medium=None)
    )

    await until(lambda: publisher.received.stored == HASHES)


@pytest.mark.parametrize("broken", [True, False])
async def test_an_unknown_change_empties_the_cache(publisher: Publisher, broken: bool) -> None:
    """After lost or unreadable messages nothing is known to be cached but what comes later."""
    await publisher.publish(stored())
    await until(lambda: publisher.received.stored == HASHES)
    later = list(range(5, 5 + BLOCK_TOKENS))
    if broken:
        await publisher.send(b"junk")
    await publisher.publish(stored(block_hashes=[2], token_ids=later), lost=0 if broken else 2)

    await until(lambda: publisher.received.stored == set(prefix_hashes(later)))
    assert publisher.received.cleared


@pytest.mark.parametrize(
    ("changed", "message"),
    [({"kv_events_config": object()}, "mutually exclusive"), ({"data_parallel_size": 2}, "data-parallel")],
)
async def test_engines_that_cannot_publish_are_refused(changed: dict[str, Any], message: str) -> None:
    """Where the operator has configured events, and where there are several caches."""
    subscriber = kv_events.KvEventSubscriber(CacheChange().add)
    with pytest.raises(EngineFailed, match=message):
        subscriber.configure(arguments(**changed))
    await subscriber.stop()
