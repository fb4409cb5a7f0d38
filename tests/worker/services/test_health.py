"""A worker's health port, for probes without certificates."""

from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2
from grpc_health.v1._async import HealthServicer

from tests.tokenwire.peer_auth.site import (
    METHODS,
    Site,
    authenticating_worker,
    call,
)
from tests.worker.peers import connected_peer
from tokenwire.peer_auth.settings import PeerAuthClientSettings
from tokenwire.worker.services.health import HealthServer


async def test_the_health_port_serves_only_health(tmp_path: Path) -> None:
    """If certificates are required, probes have a port without them."""
    site = Site(tmp_path)
    async with authenticating_worker(site.worker, health_listen="127.0.0.1:0") as worker:
        assert worker.health_address is not None
        async with connected_peer(worker.health_address) as prober:
            assert await prober.health() == "SERVING"
        for method in METHODS:
            status = await call(worker.health_address, method, PeerAuthClientSettings())
            assert status is grpc.StatusCode.UNIMPLEMENTED


async def test_a_taken_health_port_is_reported() -> None:
    """The error names the address and the option."""
    first = HealthServer("127.0.0.1:0", HealthServicer())
    await first.startup()
    try:
        with pytest.raises(OSError, match=f"cannot listen on {first.address} .--health-listen"):
            await HealthServer(first.address, HealthServicer()).startup()
    finally:
        await first.stop()


async def test_a_health_port_may_be_a_socket(address: str) -> None:
    """A probe in the same pod needs no port."""
    health = HealthServicer()
    await health.set("", health_pb2.HealthCheckResponse.NOT_SERVING)
    server = HealthServer(address, health)
    await server.startup()
    try:
        async with connected_peer(address) as prober:
            assert (server.address, await prober.health()) == (address, "NOT_SERVING")
    finally:
        await server.stop()
