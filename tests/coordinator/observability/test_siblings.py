"""Exchange among processes of one port."""

import asyncio
import os
import socket
from pathlib import Path

from tokenwire.coordinator.observability.siblings import Siblings


async def serve(path: Path, response: bytes) -> asyncio.Server:
    """Serve every request with the same bytes."""

    async def respond(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert await reader.readline() == b"topic 7\n"
        writer.write(response)
        writer.close()

    return await asyncio.start_unix_server(respond, path)


async def test_siblings_respond_and_others_are_left_out(tmp_path: Path) -> None:
    """A socket without a listener, and a response that breaks off, are not part of the result."""
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(tmp_path / "dead.sock"))
    full = await serve(tmp_path / "full.sock", b'{"tokens": 3}\n')
    broken = await serve(tmp_path / "broken.sock", b'{"tok')
    own = Siblings(tmp_path)
    await own.start()
    try:
        assert (tmp_path / f"{os.getpid()}.sock").exists()
        assert await own.fetch("topic", "7") == [b'{"tokens": 3}']
    finally:
        await own.stop()
        full.close()
        broken.close()
    assert not (tmp_path / f"{os.getpid()}.sock").exists()


async def test_a_process_responds_by_topic(tmp_path: Path) -> None:
    """It gets the argument; a request for an unknown topic has no response."""
    own = Siblings(tmp_path)
    own.provide("topic", lambda argument: f"asked for {argument}".encode())
    await own.start()
    (tmp_path / f"{os.getpid()}.sock").rename(tmp_path / "other.sock")
    try:
        assert await own.fetch("topic", "7") == [b"asked for 7"]
        assert await own.fetch("unknown") == []
    finally:
        await own.stop()


async def test_alone_there_are_no_siblings() -> None:
    """One process has no directory and no socket."""
    own = Siblings()
    await own.start()
    assert await own.fetch("topic") == ()
    await own.stop()
