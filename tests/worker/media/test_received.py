"""Tests of what a worker keeps of media."""

import asyncio
import hashlib
from collections.abc import AsyncIterator
from contextlib import ExitStack

import pytest

from tokenwire.errors import InvalidRequest, Overloaded
from tokenwire.v1 import inference_pb2 as pb
from tokenwire.worker.media.received import ReceivedMedia


def item_digest(data: bytes) -> bytes:
    """Return the name of an item."""
    return hashlib.sha256(data).digest()


async def item_chunks(
    *parts: bytes, size: int | None = None, name: bytes | None = None
) -> AsyncIterator[pb.PutRequest]:
    """Yield an item in parts."""
    whole = b"".join(parts)
    first = pb.PutRequest(
        digest=item_digest(whole) if name is None else name, size=len(whole) if size is None else size
    )
    yield first
    for part in parts:
        yield pb.PutRequest(data=part)


async def test_an_item_is_found_by_its_digest() -> None:
    """An item that came in chunks is whole; putting it again changes nothing."""
    received = ReceivedMedia(100)
    for _ in range(2):
        await received.receive(item_chunks(b"ab", b"c"))
    assert received.get(item_digest(b"abc")) == b"abc"
    assert received.get(item_digest(b"other")) is None
    assert (received.puts, received.received_bytes, received.used_bytes) == (1, 3, 3)


@pytest.mark.parametrize(
    "wrong",
    [
        {"name": item_digest(b"other")},
        {"name": b"short"},
        {"size": 2},
        {"size": 4},
        {"size": 0},
    ],
)
async def test_bytes_that_are_not_what_was_announced_are_refused(wrong: dict[str, object]) -> None:
    """A wrong digest, too few bytes and too many are refused, and nothing is kept."""
    received = ReceivedMedia(100)
    with pytest.raises(InvalidRequest):
        await received.receive(item_chunks(b"ab", b"c", **wrong))  # type: ignore[arg-type]
    assert received.used_bytes == 0


async def test_a_put_that_ends_in_the_middle_leaves_nothing() -> None:
    """Memory for an item whose sender went away is free again."""
    received = ReceivedMedia(100)
    arrived = asyncio.Event()

    async def stuck() -> AsyncIterator[pb.PutRequest]:
        yield pb.PutRequest(digest=item_digest(b"x"), size=60, data=b"x")
        arrived.set()
        await asyncio.Event().wait()

    task = asyncio.create_task(received.receive(stuck()))
    await arrived.wait()
    assert received.used_bytes == 60
    with pytest.raises(Overloaded):
        await received.receive(item_chunks(b"y" * 60))
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await received.receive(item_chunks(b"y" * 60))
    assert received.used_bytes == 60


async def test_items_used_least_recently_make_room() -> None:
    """Memory is bounded: the item that was not used for longest is dropped."""
    received = ReceivedMedia(100)
    for data in (b"a" * 40, b"b" * 40):
        await received.receive(item_chunks(data))
    received.get(item_digest(b"a" * 40))
    await received.receive(item_chunks(b"c" * 40))
    assert received.get(item_digest(b"a" * 40))
    assert received.get(item_digest(b"b" * 40)) is None
    assert received.used_bytes == 80


async def test_items_that_wait_to_be_processed_are_dropped_last() -> None:
    """Then the last ones of the tenant that has most: the others' are there at their turns, and so are its first."""
    received = ReceivedMedia(100)
    items = {name: name.encode() * 20 for name in "abcde"}
    for data in items.values():
        await received.receive(item_chunks(data))

    def found() -> str:
        return "".join(name for name, data in items.items() if received.get(item_digest(data)))

    with ExitStack() as waiting:
        for name, tenant in ("b", "many"), ("c", "few"), ("d", "many"), ("e", "many"), ("e", "few"):
            waiting.enter_context(received.awaited(item_digest(items[name]), tenant))
        await received.receive(item_chunks(b"x" * 20))
        assert found() == "bcde"
        await received.receive(item_chunks(b"x" * 40))
        assert found() == "bcd"
        await received.receive(item_chunks(b"x" * 60))
        assert found() == "bc"
    await received.receive(item_chunks(b"x" * 100))
    assert found() == ""
