"""The page of metrics, and clients that do not read it."""

import asyncio
from typing import Any

from tests.clock import Clock
from tests.coordinator.fakes import request_context
from tokenwire.coordinator.api.metrics_page import MetricsPages, PageResponse
from tokenwire.coordinator.generation.context import CONTEXT


class StandingClient:
    """A client that reads nothing until it is let."""

    def __init__(self, response: PageResponse) -> None:
        self.context = request_context()
        self.may_read = asyncio.Event()
        self.parts: list[bytes] = []
        self.task = asyncio.ensure_future(response({"type": "http", CONTEXT: self.context}, self._receive, self._send))

    async def _receive(self) -> Any:
        raise AssertionError("nothing is received")

    async def _send(self, message: Any) -> None:
        await self.may_read.wait()
        self.parts.append(message.get("body", b""))


async def test_clients_that_do_not_read_keep_few_texts() -> None:
    """With eight unread ones the newest is shared for a second; then those who read the oldest are cut."""
    made: list[bytes] = []
    clock = Clock()

    async def make() -> bytes:
        made.append(b"%d" % len(made) * 200_000)
        return made[-1]

    pages = MetricsPages(make, clock)

    async def client() -> StandingClient:
        standing = StandingClient(PageResponse(pages, await pages.current(), "text/plain"))
        await asyncio.sleep(0)
        return standing

    clients = [await client() for _ in range(20)]
    assert len(made) == 8
    clock.now += 1.0
    clients.append(await client())
    assert len(made) == 9
    assert [each.context.connection.was_cut for each in clients] == [True] + [False] * 20

    for each in clients:
        each.may_read.set()
        await each.task
    assert b"".join(clients[0].parts) == b""
    assert [b"".join(each.parts) for each in clients[1:]] == [*made[1:8], *made[7:8] * 12, made[8]]
    await client()
    assert len(made) == 10


async def test_who_asks_at_a_time_shares_a_text() -> None:
    """Which was begun after all of them had asked: nobody waits for more than two to be made."""
    made: list[bytes] = []
    may_end = asyncio.Event()

    async def make() -> bytes:
        made.append(b"%d" % len(made))
        await may_end.wait()
        return made[-1]

    pages = MetricsPages(make, Clock())
    asking = [asyncio.create_task(pages.current()) for _ in range(5)]
    await asyncio.sleep(0)
    may_end.set()

    assert [(await each).text for each in asking] == [b"0"] + [b"1"] * 4
