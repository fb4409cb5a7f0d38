"""The coordinator's server: what it announces, and its drain."""

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from tests.workers import running_worker, unix_address, until
from tokenwire.coordinator.auth.caller import Caller, caller_at
from tokenwire.coordinator.server import CoordinatorServer
from tokenwire.coordinator.settings import CoordinatorSettings
from tokenwire.process.sockets import bind


@contextlib.asynccontextmanager
async def started(settings: CoordinatorSettings, ready_fd: int | None = None) -> AsyncIterator[CoordinatorServer]:
    """Run a server until the end of the block."""
    bound = bind("127.0.0.1", 0)
    server = CoordinatorServer(settings, bound, ready_fd)
    running = asyncio.create_task(server.serve(sockets=[bound]))
    try:
        await until(lambda: server.started)
        yield server
    finally:
        server.should_exit = True
        await running


def url_of(server: CoordinatorServer) -> str:
    """Return a server's URL."""
    host, port = server._bound.getsockname()[:2]
    return f"http://{host}:{port}"


async def test_it_is_announced_when_a_worker_is_ready(tmp_path: Path) -> None:
    """To the parent process, if that announces the port; not before."""
    address = unix_address(tmp_path)
    reader, writer = os.pipe()
    os.set_blocking(reader, False)
    try:
        async with started(CoordinatorSettings((address,)), writer):
            with pytest.raises(BlockingIOError):
                os.read(reader, 1)
            async with running_worker(address):
                logged = asyncio.Event()
                asyncio.get_running_loop().add_reader(reader, logged.set)
                async with asyncio.timeout(20):
                    await logged.wait()
                asyncio.get_running_loop().remove_reader(reader)
                assert os.read(reader, 20) == b"/generate\n"
    finally:
        os.close(reader)
        os.close(writer)


async def test_it_is_unhealthy_before_it_stops_listening(tmp_path: Path) -> None:
    """During the drain delay it serves, closes connections, and load balancers see that it ends."""
    address = unix_address(tmp_path)
    async with running_worker(address), httpx.AsyncClient() as client:
        async with started(replace(CoordinatorSettings((address,)), drain_delay_s=0.5)) as server:
            url = url_of(server)
            await until(server._pool.is_ready)
            healthy = await client.get(f"{url}/health")
            server.should_exit = True
            await until(lambda: server._readiness.stopping)
            draining = await client.get(f"{url}/health")
        with pytest.raises(httpx.ConnectError):
            await client.get(f"{url}/health")

    assert (healthy.status_code, draining.status_code) == (200, 503)
    assert draining.headers["connection"] == "close"


async def test_a_signal_stops_it_once() -> None:
    """Unlike uvicorn, it does not raise the signal again; earlier handlers are restored."""
    before = signal.getsignal(signal.SIGTERM)
    async with started(CoordinatorSettings(("127.0.0.1:1",))) as server:
        assert signal.getsignal(signal.SIGTERM) == server.handle_exit
        os.kill(os.getpid(), signal.SIGTERM)
        await until(lambda: server.should_exit)

    assert signal.getsignal(signal.SIGTERM) == before


@pytest.mark.parametrize(
    ("proxies", "share"), [((), "127.0.0.1"), (("10.0.0.1",), "127.0.0.1"), (("127.0.0.0/8", "10.0.0.1"), "192.0.2.7")]
)
async def test_a_clients_address_is_taken_from_proxies_that_are_trusted(
    monkeypatch: pytest.MonkeyPatch, proxies: tuple[str, ...], share: str
) -> None:
    """Of those that they name the last one that is no proxy itself: others could be invented."""
    shares: list[str] = []

    def record(host: str) -> Caller:
        shares.append(caller_at(host).share)
        return caller_at(host)

    monkeypatch.setattr("tokenwire.coordinator.api.middleware.caller_at", record)
    settings = CoordinatorSettings(("127.0.0.1:1",), trusted_proxies=proxies)
    async with started(settings) as server, httpx.AsyncClient() as client:
        forwarded = {"X-Forwarded-For": "198.51.100.1, 192.0.2.7, 10.0.0.1"}
        assert (await client.get(f"{url_of(server)}/version", headers=forwarded)).status_code == 200

    assert shares == [share]
