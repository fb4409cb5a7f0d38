"""The client's side of a request, inside a real server: with the lent transport, and by plain ASGI."""

import asyncio
from typing import Any

import pytest
import uvloop

from tests.coordinator.serving import Client, Exchange, client_of, serving
from tests.workers import until

both = pytest.mark.parametrize("lent", [True, False], ids=["lent", "asgi"])


@pytest.fixture(scope="module")
def event_loop_policy() -> Any:
    """Run on the loop that the coordinator runs on: transports differ."""
    return uvloop.EventLoopPolicy()


@both
async def test_chunks_arrive_whole_and_in_order(lent: bool) -> None:
    """Each write is one chunk, in one turn of the loop or in many; an empty one does not end the body."""
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

    async with serving(route, lent) as port, client_of(port) as client:
        await client.send("/")
        reply = await client.read_reply()

        assert (reply.status, reply.chunks, reply.complete) == (200, parts, True)


@both
async def test_a_connection_serves_again_after_a_stream(lent: bool) -> None:
    """Requests follow each other on one connection, also after a reply that was read slowly."""
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

    async with serving(route, lent) as port, client_of(port) as client:
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
    """The second of two requests sent at once begins when the first has ended, and its client is watched."""
    order: list[str] = []
    second_is_lost = asyncio.Event()

    async def route(exchange: Exchange) -> None:
        order.append(f"{exchange.path} begins")
        exchange.watch()
        await exchange.begin()
        for _ in range(5):
            exchange.connection.write(exchange.path.encode())
            await asyncio.sleep(0)
        if exchange.path == "/second":
            await exchange.lost.wait()
            second_is_lost.set()
            return
        await exchange.end()
        order.append(f"{exchange.path} ended")

    async with serving(route, lent) as port, client_of(port) as client:
        await client.send("/first", "/second")
        first = await client.read_reply()
        await until(lambda: "/second begins" in order)
        client.leave()
        await second_is_lost.wait()

    assert (first.body, first.complete) == (b"/first" * 5, True)
    assert order == ["/first begins", "/first ended", "/second begins"]


@both
async def test_a_client_that_leaves_is_noticed(lent: bool) -> None:
    """The callback is called without a write; later writes and flushes have no effect."""
    watched, noticed = asyncio.Event(), asyncio.Event()

    async def route(exchange: Exchange) -> None:
        exchange.watch()
        assert not exchange.connection.lost
        watched.set()
        await exchange.lost.wait()
        assert exchange.connection.lost
        exchange.connection.write(b"too late")
        await exchange.connection.flush()
        noticed.set()

    async with serving(route, lent) as port, client_of(port) as client:
        await client.send("/")
        await watched.wait()
        client.leave()
        await noticed.wait()


@both
async def test_a_client_that_left_before_is_noticed(lent: bool) -> None:
    """Watching a connection that is gone calls back too."""
    arrived, noticed = asyncio.Event(), asyncio.Event()

    async def route(exchange: Exchange) -> None:
        arrived.set()
        await exchange.disconnect()
        assert not exchange.lost.is_set()
        exchange.watch()
        await exchange.lost.wait()
        noticed.set()

    async with serving(route, lent) as port, client_of(port) as client:
        await client.send("/")
        await arrived.wait()
        client.leave()
        await noticed.wait()


@both
async def test_a_slow_reader_is_congested_until_it_reads_on(lent: bool) -> None:
    """Unread bytes turn `congested` true; the callback comes when they are read, and it is false by then."""
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

    async with serving(route, lent) as port, client_of(port) as client:
        await client.send("/")
        await congested.wait()
        assert not drained.is_set()

        reply = await client.read_reply()

        assert drained.is_set()
        assert (len(reply.body), reply.complete) == (sizes[0], True)


@both
async def test_a_congested_client_that_leaves_holds_nobody_up(lent: bool) -> None:
    """When a client leaves with a full buffer, it is noticed, and a flush returns."""
    congested, flushed = asyncio.Event(), asyncio.Event()

    async def route(exchange: Exchange) -> None:
        exchange.watch()
        await exchange.begin()
        await exchange.congest()
        congested.set()
        await exchange.lost.wait()
        await exchange.connection.flush()
        flushed.set()

    async with serving(route, lent) as port, client_of(port) as client:
        await client.send("/")
        await congested.wait()
        client.leave()
        await flushed.wait()


@both
async def test_a_cut_reply_is_not_taken_for_whole(lent: bool) -> None:
    """A cut connection ends without the last chunk."""

    async def route(exchange: Exchange) -> None:
        exchange.watch()
        await exchange.begin()
        exchange.connection.write(b"half of")
        await exchange.connection.flush()
        exchange.connection.cut()

    async with serving(route, lent) as port, client_of(port) as client:
        await client.send("/")
        reply = await client.read_reply()

        assert not reply.complete
        assert await client.at_end()


@both
async def test_after_a_release_nobody_is_called(lent: bool) -> None:
    """After release no callback is called, whether the client reads on or disconnects."""
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

    async with serving(route, lent) as port, client_of(port) as client:
        await client.send("/")
        await congested.wait()
        while await _read_on(client):
            pass
        client.leave()
        await disconnected.wait()


async def _read_on(client: Client) -> bool:
    """Read while there is something to read."""
    try:
        return bool(await asyncio.wait_for(client.read_some(1_000_000), 0.1))
    except TimeoutError:
        return False


async def test_a_client_that_reads_nothing_is_cut() -> None:
    """After the stall timeout the connection is closed, without the end of the body and with the callback."""
    cut = asyncio.Event()

    async def route(exchange: Exchange) -> None:
        exchange.watch()
        await exchange.begin()
        await exchange.congest()
        await exchange.lost.wait()
        cut.set()

    async with serving(route, lent=True, stall_timeout_s=0.3) as port, client_of(port) as client:
        await client.send("/")
        await cut.wait()

        assert not (await client.read_reply()).complete


async def test_a_client_that_reads_slowly_is_not_cut() -> None:
    """However long it stays behind: as long as it reads now and then, it gets everything."""
    stall_timeout_s, reads = 0.4, 12
    congested = asyncio.Event()
    sizes: list[int] = []

    async def route(exchange: Exchange) -> None:
        exchange.watch()
        await exchange.begin()
        size = await exchange.congest()
        exchange.connection.write(bytes(8_000_000))  # so much that it stays behind for the whole test
        sizes.append(size + 8_000_000)
        congested.set()
        await exchange.drained.wait()
        await exchange.end()

    async with serving(route, lent=True, stall_timeout_s=stall_timeout_s) as port, client_of(port) as client:
        await client.send("/")
        await congested.wait()
        for _ in range(reads):
            await asyncio.sleep(stall_timeout_s / 4)  # this is what reading slowly means
            await client.read_some()
        reply = await client.read_reply()

        assert (len(reply.body), reply.complete) == (sizes[0], True)
