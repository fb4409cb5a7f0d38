"""Gathered writes: one for each connection and iteration of the loop, in order."""

import asyncio
from collections.abc import Iterable

from tokenwire.coordinator.http.write_batch import BatchedTransport, Data, WriteBatch


class Transport(asyncio.Transport):
    """Records writes while it is open."""

    def __init__(self, closing: bool = False, broken: bool = False) -> None:
        self.closing = closing
        self.broken = broken
        self.data = b""
        self.calls = 0

    def is_closing(self) -> bool:
        """Return whether it was closed."""
        return self.closing

    def close(self) -> None:
        """Close it."""
        self.closing = True

    def abort(self) -> None:
        """Close it."""
        self.closing = True

    def write(self, data: Data) -> None:
        """Record data."""
        assert not self.closing, "uvloop raises here"
        if self.broken:
            raise RuntimeError("cannot write")
        self.data += data
        self.calls += 1

    def writelines(self, list_of_data: Iterable[Data]) -> None:
        """Record them as one write."""
        self.write(b"".join(list_of_data))


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


async def test_what_is_written_in_an_iteration_is_one_write() -> None:
    """The head of a response, its chunks and its end are one system call."""
    batch, real = WriteBatch(), Transport()
    transport = BatchedTransport(real, batch)
    transport.write(b"head ")
    batch.add(real, b"chunk ")
    transport.write(b"end")

    await asyncio.sleep(0)

    assert (real.data, real.calls) == (b"head chunk end", 1)


async def test_a_large_piece_is_written_at_once_after_what_came_before() -> None:
    """Its writer must learn of a slow reader before it writes the next one."""
    batch, real = WriteBatch(), Transport()
    transport = BatchedTransport(real, batch)
    transport.write(b"head ")

    transport.write(b"x" * 65536)

    assert (len(real.data), real.data[:5]) == (5 + 65536, b"head ")


async def test_a_closed_transport_has_written_everything() -> None:
    """A response whose connection is closed after it is complete."""
    batch, real = WriteBatch(), Transport()
    transport = BatchedTransport(real, batch)
    transport.write(b"the end")

    transport.close()

    assert (real.data, transport.is_closing()) == (b"the end", True)


async def test_an_aborted_transport_writes_nothing_more() -> None:
    """What waits for the end of the iteration is dropped."""
    batch, real = WriteBatch(), Transport()
    transport = BatchedTransport(real, batch)
    transport.write(b"never")
    transport.abort()

    await asyncio.sleep(0)

    assert (real.data, real.closing) == (b"", True)
