"""Exchange of metrics among processes of one port."""

import asyncio
import os
import socket
from pathlib import Path

from prometheus_client import CollectorRegistry, Counter

from tokenwire.coordinator.observability.metrics.siblings import SiblingSockets, dumped


async def test_a_dead_sibling_is_left_out(tmp_path: Path) -> None:
    """Siblings' metrics are returned with their labels; a socket without a listener is skipped."""
    registry = CollectorRegistry()
    Counter("tokens", "Some.", ("model",), registry=registry).labels("m").inc(3)

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(dumped(registry.collect()))
        writer.close()

    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(tmp_path / "dead.sock"))
    server = await asyncio.start_unix_server(answer, tmp_path / "other.sock")
    own = SiblingSockets(tmp_path, registry.collect)
    await own.start()
    try:
        assert (tmp_path / f"{os.getpid()}.sock").exists()
        ((family,),) = await own.families()
        assert family.name == "tokens"
        assert family.samples[0][:3] == ("tokens_total", {"model": "m"}, 3.0)
    finally:
        await own.stop()
        server.close()
