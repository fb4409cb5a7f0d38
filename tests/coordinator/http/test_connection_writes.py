"""Writes that go nowhere: closed transports in a batch, and a server that cannot send."""

import asyncio

from starlette.types import Message

from tokenwire.coordinator.http.connection import AsgiConnection, WriteBatch


class Transport(asyncio.Transport):
    """Takes writes, as long as it is open."""

    def __init__(self, closing: bool = False, broken: bool = False) -> None:
        self.closing = closing
        self.broken = broken
        self.data = b""

    def is_closing(self) -> bool:
        """Tell whether it was closed."""
        return self.closing

    def abort(self) -> None:
        """Close it."""
        self.closing = True

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Keep what was written."""
        assert not self.closing, "uvloop raises here"
        if self.broken:
            raise RuntimeError("cannot write")
        self.data += data


async def test_a_batch_is_written_at_the_end_of_the_turn() -> None:
    """Nothing is written while the loop's turn lasts; then everything is, in order, turn after turn."""
    batch, one, two = WriteBatch(), Transport(), Transport()
    for turn in range(1, 3):
        for letter in (b"a", b"b"):
            batch.add(one, letter)
            batch.add(two, letter.upper())
        assert (one.data, two.data) == (b"ab" * (turn - 1), b"AB" * (turn - 1))

        await asyncio.sleep(0)

        assert (one.data, two.data) == (b"ab" * turn, b"AB" * turn)


async def test_a_batch_spares_closed_transports() -> None:
    """A transport that was closed in the same iteration does not lose the data of others."""
    batch, before, gone, after = WriteBatch(), Transport(), Transport(), Transport()
    for transport in (before, gone, after):
        batch.add(transport, b"data")
    gone.closing = True

    batch.flush()

    assert (before.data, gone.data, after.data) == (b"data", b"", b"data")


async def test_a_batch_goes_on_behind_a_transport_that_breaks() -> None:
    """That one is closed, so that its client does not take what it has for whole."""
    batch, broken, after = WriteBatch(), Transport(broken=True), Transport()
    for transport in (broken, after):
        batch.add(transport, b"data")

    batch.flush()

    assert (broken.closing, after.data) == (True, b"data")


async def test_a_server_that_cannot_send_holds_nobody_up() -> None:
    """An ASGI server may raise from `send` when the client is gone: a flush returns all the same."""

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
