"""The light client sends requests one after the other and in parallel, and accepts whole replies alone."""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from benchmarks.standard.http_client import Connection, all_at_once, http_get, kept_alive
from tests.benchmarks.test_load import CHUNKED, DONE, FULL, delta

WHOLE = b'HTTP/1.1 200 OK\r\nContent-Length: 12\r\n\r\n{"text":"a"}'


@asynccontextmanager
async def replying_with(*replies: bytes) -> AsyncIterator[tuple[str, list[int]]]:
    """Answer each GET on a connection with the next reply; yield the URL, and how many came by connection."""
    served: list[int] = []
    answering: set[asyncio.Task[None] | None] = set()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        answering.add(asyncio.current_task())
        number = len(served)
        served.append(0)
        while (await reader.read(1000)).endswith(b"\r\n\r\n"):
            writer.write(replies[served[number] % len(replies)])
            served[number] += 1
        writer.close()
        await writer.wait_closed()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", served
    finally:
        server.close()
        await asyncio.gather(*(task for task in answering if task))  # they end with their connections


async def test_connections_are_kept_and_share_the_requests() -> None:
    """Each takes the next one as soon as it has its reply."""
    async with replying_with(FULL, WHOLE) as (url, served):
        replies = await kept_alive(url, [http_get(url, "/")] * 6, 2)

    assert len(replies) == sum(served) == 6
    assert len(served) == 2


async def test_requests_at_once_have_a_connection_each() -> None:
    """As clients that do not know each other."""
    async with replying_with(WHOLE) as (url, served):
        replies = await all_at_once(url, http_get(url, "/"), 3)

    assert served == [1, 1, 1]
    assert {reply.body for reply in replies} == {b'{"text":"a"}'}


async def test_the_first_token_is_the_first_text() -> None:
    """A chunk with a role alone is none."""
    async with replying_with(CHUNKED + delta("") + DONE, FULL) as (url, _):
        empty, full = await kept_alive(url, [http_get(url, "/")] * 2, 1)

    assert empty.first_token == 0
    assert full.first_token >= full.sent
    assert (empty.chunks, full.chunks) == (1, 3)


@pytest.mark.parametrize(
    ("reply", "error"),
    [
        (b"HTTP/1.1 400 Bad\r\nContent-Length: 5\r\n\r\nwrong", "400: b'wrong'"),
        (CHUNKED + delta("cut") + b"0\r\n\r\n", "200: b'data: .*cut"),
    ],
)
async def test_what_is_no_whole_reply_is_an_error(reply: bytes, error: str) -> None:
    """An error, or a stream without its end."""
    async with replying_with(reply) as (url, _):
        connection = await Connection.open(url)
        with pytest.raises(RuntimeError, match=error):
            await connection.send(http_get(url, "/"))
        connection.close()


async def test_a_lost_connection_is_an_error() -> None:
    """Nobody waits for its reply."""
    async with replying_with(WHOLE) as (url, _):
        connection = await Connection.open(url)
        with pytest.raises(RuntimeError, match=re.escape("the connection was lost")):
            await connection.send(b"no request")
