"""Bodies that are sent as fast as their clients read them: one who stands still holds one part."""

import asyncio
from collections.abc import AsyncIterator, Iterator

from starlette.types import Send

PART_BYTES = 64 * 1024
"""A longer part would be held whole for its client; shorter ones would not be worth a turn each."""


def byte_parts(data: bytes, start: int = 0) -> Iterator[bytes]:
    """Yield what follows a place in data, in parts that are copied as they are taken."""
    for place in range(start, len(data), PART_BYTES):
        yield data[place : place + PART_BYTES]


async def send_as_read(send: Send, parts: AsyncIterator[bytes]) -> None:
    """Send the parts of a body, and its end; make each one when the client has read most of those before it."""
    async for part in parts:
        await send({"type": "http.response.body", "body": part, "more_body": True})
        del part
        await asyncio.sleep(0)  # until then the connection may gather what it is to write
        await send({"type": "http.response.body", "body": b"", "more_body": True})  # which waits for a slow reader
    await send({"type": "http.response.body", "body": b"", "more_body": False})
