"""The lent transport: slow readers, and clients that leave."""

import asyncio

import pytest

from tests.coordinator.serving import Exchange, connected_to, serving


async def test_a_client_that_reads_nothing_is_cut() -> None:
    """After the stall timeout the connection is closed without the end of the body, and the callback is called."""
    cut = asyncio.Event()

    async def route(exchange: Exchange) -> None:
        exchange.watch()
        await exchange.begin()
        await exchange.congest()
        await exchange.lost.wait()
        cut.set()

    async with serving(route, lent=True, stall_timeout_s=0.3) as port, connected_to(port) as client:
        await client.send("/")
        await cut.wait()

        assert not (await client.read_reply()).complete


async def test_a_client_that_reads_slowly_is_not_cut() -> None:
    """It gets everything as long as it reads now and then."""
    stall_timeout_s, reads = 0.4, 12
    congested = asyncio.Event()
    sizes: list[int] = []

    async def route(exchange: Exchange) -> None:
        exchange.watch()
        await exchange.begin()
        size = await exchange.congest()
        exchange.connection.write(bytes(8_000_000))  # enough to stay congested for the whole test
        sizes.append(size + 8_000_000)
        congested.set()
        await exchange.drained.wait()
        await exchange.end()

    async with serving(route, lent=True, stall_timeout_s=stall_timeout_s) as port, connected_to(port) as client:
        await client.send("/")
        await congested.wait()
        for _ in range(reads):
            await asyncio.sleep(stall_timeout_s / 4)  # the slow reader
            await client.read_some()
        reply = await client.read_reply()

        assert (len(reply.body), reply.complete) == (sizes[0], True)


@pytest.mark.parametrize("size", [1, 100_000, 300_000, 1_000_000])
@pytest.mark.parametrize("pieces", [1, 2])
async def test_a_client_that_leaves_is_noticed_whatever_it_has_sent(size: int, pieces: int) -> None:
    """Before a reply has begun: nothing that is written would fail."""
    waits = asyncio.Event()
    left = asyncio.Event()

    async def route(exchange: Exchange) -> None:
        exchange.watch()
        waits.set()
        await exchange.lost.wait()
        left.set()

    async with serving(route, lent=True) as port:
        async with connected_to(port) as client:
            await client.send_raw(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % size)
            for piece in range(pieces):
                await client.send_raw(b"x" * (size * (piece + 1) // pieces - size * piece // pieces))
            await waits.wait()

        await left.wait()
