"""Bodies that are sent as they are read."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from tokenwire.coordinator.api.as_read import send_as_read


class SlowClient:
    """A client for which the server waits before it takes more, as long as what it was sent is unread."""

    def __init__(self) -> None:
        self.messages: list[Any] = []
        self.may_read = asyncio.Semaphore(0)

    async def send(self, message: Any) -> None:
        """Take a part only when the one before it has been read."""
        if self.messages:
            await self.may_read.acquire()
            self.may_read.release()
        self.messages.append(message)

    @property
    def body(self) -> bytes:
        """All that it was sent."""
        return b"".join(each["body"] for each in self.messages)


async def test_a_part_is_made_when_the_one_before_it_is_read() -> None:
    """Who stands still has one part made for it; in the end it gets all parts in their order."""
    made: list[int] = []

    async def parts() -> AsyncIterator[bytes]:
        for index in range(4):
            made.append(index)
            yield b"%d" % index

    client = SlowClient()
    sending = asyncio.create_task(send_as_read(client.send, parts()))
    for _ in range(10):
        await asyncio.sleep(0)
    assert made == [0]
    client.may_read.release()
    await sending

    assert client.body == b"0123"
    assert [each["more_body"] for each in client.messages] == [True] * (len(client.messages) - 1) + [False]
