"""Connections in a real server: with the lent transport, and over plain ASGI."""

import asyncio

import pytest
from starlette.types import Message

from tests.coordinator.serving import Exchange, SocketClient, connected_to, serving
from tests.workers import until
from tokenwire.coordinator.http.connection import AsgiConnection

both = pytest.mark.parametrize("lent", [True, False], ids=["lent", "asgi"])


@both
async def test_chunks_arrive_whole_and_in_order(lent: bool) -> None:
    """Each write is one chunk, in one iteration of the loop or in several; an empty one does not end the body."""
    parts = [b"one", "zwei…".encode(), b"0\r\n\r\n", b"x" * 300_000, b"last"]

    async def route(exchange: Exchange) -> None:
        exchange.watch()
        await exchange.begin()
        for number, part in enumerate(parts):
            exchange.connection.write(part)
            exchange.connection.write(b"")
            if number % 2:
                await asyncio.sleep(0)
        await exchange.end()

    async with serving(route, lent) as port, connected_to(port) as client:
        await client.send("/")
        reply = await client.read_reply()

        assert (reply.status, reply.chunks, reply.complete) == (200, parts, True)


@both
async def test_a_connection_is_reused_after_a_stream(lent: bool) -> None:
    """Requests follow each other on one connection, even after a reply that was read slowly."""
    sizes: list[int] = []
    written = asyncio.Event()

    async def route(exchange: Exchange) -> None:
        exchange.watch()
        await exchange.begin()
        if exchange.path == "/slow":
            sizes.append(await exchange.congest())
        written.set()
        exchange.connection.write(exchange.path.encode())
        await exchange.end()

    async with serving(route, lent) as port, connected_to(port) as client:
        for path in ("/one", "/slow", "/two"):
            written.clear()
            await client.send(path)
            await written.wait()
            reply = await client.read_reply()

            assert reply.complete
            assert reply.body.lstrip(b"\0") == path.encode()
            assert len(reply.body) == len(path) + (sizes[0] if path == "/slow" else 0)


@both
async def test_a_pipelined_request_is_answered_after_the_first(lent: bool) -> None:
    """The second of two requests sent at once starts when the first has ended, and its disconnect is detected."""
    order: list[str] = []
    second_lost = asyncio.Event()

    async def route(exchange: Exchange) -> None:
        order.append(f"{exchange.path} begins")
        exchange.watch()
        await exchange.begin()
        for _ in range(5):
            exchange.connection.write(exchange.path.encode())
            await asyncio.sleep(0)
        if exchange.path == "/second":
            await exchange.lost.wait()
            second_lost.set()
            return
        await exchange.end()
        order.append(f"{exchange.path} ended")

    async with serving(route, lent) as port, connected_to(port) as client:
        await client.send("/first", "/second")
        first = await client.read_reply()
        await until(lambda: "/second begins" in order)
        client.leave()
        await second_lost.wait()

    assert (first.body, first.complete) == (b"/first" * 5, True)
    assert order == ["/first begins", "/first ended", "/second begins"]


@both
async def test_a_disconnect_calls_back(lent: bool) -> None:
    """The callback is called without a write; later writes and flushes have no effect."""
    watched, called = asyncio.Event(), asyncio.Event()

    async def route(exchange: Exchange) -> None:
        exchange.watch()
        assert not exchange.connection.lost
        watched.set()
        await exchange.lost.wait()
        assert exchange.connection.lost
        exchange.connection.write(b"too late")
        await exchange.connection.flush()
        called.set()

    async with serving(route, lent) as port, connected_to(port) as client:
        await client.send("/")
        await watched.wait()
        client.leave()
        await called.wait()


@both
async def test_an_earlier_disconnect_calls_back(lent: bool) -> None:
    """Watching a connection that is already lost calls back too."""
    arrived, called = asyncio.Event(), asyncio.Event()

    async def route(exchange: Exchange) -> None:
        arrived.set()
        await exchange.disconnect()
        assert not exchange.lost.is_set()
        exchange.watch()
        await exchange.lost.wait()
        called.set()

    async with serving(route, lent) as port, connected_to(port) as client:
        await client.send("/")
        await arrived.wait()
        client.leave()
        await called.wait()


@both
async def test_a_slow_reader_is_congested_until_it_reads_on(lent: bool) -> None:
    """Unread bytes set `congested`; the callback is called once they are read and it is false again."""
    congested, drained = asyncio.Event(), asyncio.Event()
    sizes: list[int] = []

    async def route(exchange: Exchange) -> None:
        def on_drained() -> None:
            assert not exchange.connection.congested
            drained.set()

        exchange.connection.watch(exchange.lost.set, on_drained)
        await exchange.begin()
        sizes.append(await exchange.congest())
        congested.set()
        await drained.wait()
        await exchange.end()

    async with serving(route, lent) as port, connected_to(port) as client:
        await client.send("/")
        await congested.wait()
        assert not drained.is_set()

        reply = await client.read_reply()

        assert drained.is_set()
        assert (len(reply.body), reply.complete) == (sizes[0], True)


@both
async def test_a_flush_returns_when_a_congested_client_disconnects(lent: bool) -> None:
    """The disconnect is detected despite a full buffer."""
    congested, flushed = asyncio.Event(), asyncio.Event()

    async def route(exchange: Exchange) -> None:
        exchange.watch()
        await exchange.begin()
        await exchange.congest()
        congested.set()
        await exchange.lost.wait()
        await exchange.connection.flush()
        flushed.set()

    async with serving(route, lent) as port, connected_to(port) as client:
        await client.send("/")
        await congested.wait()
        client.leave()
        await flushed.wait()


@both
async def test_a_cut_reply_is_incomplete(lent: bool) -> None:
    """A cut connection ends without the last chunk."""

    async def route(exchange: Exchange) -> None:
        exchange.watch()
        await exchange.begin()
        exchange.connection.write(b"half of")
        await exchange.connection.flush()
        exchange.connection.cut()

    async with serving(route, lent) as port, connected_to(port) as client:
        await client.send("/")
        reply = await client.read_reply()

        assert not reply.complete
        assert await client.at_end()


@both
async def test_after_a_release_no_callback_is_called(lent: bool) -> None:
    """Whether the client reads on or disconnects."""
    congested, disconnected = asyncio.Event(), asyncio.Event()

    async def route(exchange: Exchange) -> None:
        exchange.watch()
        await exchange.begin()
        await exchange.congest()
        exchange.connection.release()
        congested.set()
        await exchange.disconnect()
        await asyncio.sleep(0)
        assert not exchange.lost.is_set()
        assert not exchange.drained.is_set()
        disconnected.set()

    async with serving(route, lent) as port, connected_to(port) as client:
        await client.send("/")
        await congested.wait()
        while await _read_on(client):
            pass
        client.leave()
        await disconnected.wait()


async def _read_on(client: SocketClient) -> bool:
    """Read while there is something to read."""
    try:
        return bool(await asyncio.wait_for(client.read_some(1_000_000), 0.1))
    except TimeoutError:
        return False


async def test_a_flush_returns_when_the_server_cannot_send() -> None:
    """An ASGI server may raise from `send` when the client has disconnected."""

    async def receive() -> Message:
        return await asyncio.get_running_loop().create_future()  # type: ignore[no-any-return]

    async def send(message: Message) -> None:
        raise BrokenPipeError

    connection = AsgiConnection(receive, send)
    connection.watch(lambda: None, lambda: None)
    connection.write(b"one")
    connection.write(b"two")

    await asyncio.wait_for(connection.flush(), 5)

    connection.release()
