"""The lent transport: batched writes, and slow readers."""

import asyncio

from tests.coordinator.serving import Exchange, connected_to, serving
from tokenwire.coordinator.http.lent_connection import WriteBatch


class Transport(asyncio.Transport):
    """Records writes while it is open."""

    def __init__(self, closing: bool = False, broken: bool = False) -> None:
        self.closing = closing
        self.broken = broken
        self.data = b""

    def is_closing(self) -> bool:
        """Reiteration whether it was closed."""
        return self.closing

    def abort(self) -> None:
        """Close it."""
        self.closing = True

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Record data."""
        assert not self.closing, "uvloop raises here"
        if self.broken:
            raise RuntimeError("cannot write")
        self.data += data


async def test_a_batch_is_written_at_the_end_of_the_iteration() -> None:
    """Nothing is written during an iteration of the loop; then everything is, in order."""
    batch, one, two = WriteBatch(), Transport(), Transport()
    for iteration in range(1, 3):
        for letter in (b"a", b"b"):
            batch.add(one, letter)
            batch.add(two, letter.upper())
        assert (one.data, two.data) == (b"ab" * (iteration - 1), b"AB" * (iteration - 1))

        await asyncio.sleep(0)

        assert (one.data, two.data) == (b"ab" * iteration, b"AB" * iteration)


async def test_a_batch_skips_closed_transports() -> None:
    """A transport that was closed in the same iteration does not lose the data of others."""
    batch, before, gone, after = WriteBatch(), Transport(), Transport(), Transport()
    for transport in (before, gone, after):
        batch.add(transport, b"data")
    gone.closing = True

    batch.flush()

    assert (before.data, gone.data, after.data) == (b"data", b"", b"data")


async def test_a_batch_continues_after_a_transport_that_raises() -> None:
    """That one is closed, so that its client does not take the response for complete."""
    batch, broken, after = WriteBatch(), Transport(broken=True), Transport()
    for transport in (broken, after):
        batch.add(transport, b"data")

    batch.flush()

    assert (broken.closing, after.data) == (True, b"data")


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
