"""Certificates, tokens, and both sides of a connection that use them."""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest

from tests.certificates import CLIENT, SERVER, Authority
from tests.workers import until, worker_around
from tokenwire.coordinator.fleet.control_client import call_worker
from tokenwire.coordinator.fleet.pool import WorkerPool
from tokenwire.coordinator.fleet.session import FetchFiles
from tokenwire.coordinator.fleet.session_listener import SessionState
from tokenwire.peer_auth.client import ChannelFactory
from tokenwire.peer_auth.message_parts import BoundedChannel
from tokenwire.peer_auth.settings import PeerAuthClientSettings, PeerAuthSettings
from tokenwire.v1 import control_pb2, inference_pb2
from tokenwire.v1 import inference_pb2 as pb
from tokenwire.worker.server import WorkerServer
from tokenwire.worker.settings import WorkerSettings
from tokenwire.worker.simulated_engine.engine import SimulatedEngine
from tokenwire.worker.simulated_engine.settings import SimulationSettings

METHODS = [
    f"/{service.full_name}/{method.name}"
    for proto in (inference_pb2, control_pb2)
    for service in proto.DESCRIPTOR.services_by_name.values()
    for method in service.methods
]
"""Every method of the protocol."""


class Site:
    """Certificates and tokens: an authority, a worker's certificate and a coordinator's."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.authority = Authority()
        self.ca = self.authority.write(folder / "ca.crt")
        worker = self.authority.issue(folder, "worker", usage=SERVER)
        coordinator = self.authority.issue(folder, "coordinator", names=["coordinator"], usage=CLIENT)
        self.tokens = folder / "tokens"
        self.tokens.write_text("right\n")
        self.worker = PeerAuthSettings(worker.cert, worker.key, self.ca)
        self.coordinator = PeerAuthClientSettings(coordinator.cert, coordinator.key, self.ca)
        self.token = PeerAuthClientSettings(token_file=self.tokens)


def authenticating_worker(peer_auth: PeerAuthSettings, **settings: str) -> AbstractAsyncContextManager[WorkerServer]:
    """Run a worker on a port."""
    engine = SimulatedEngine(SimulationSettings(step_ms=1))
    return worker_around(engine, WorkerSettings("127.0.0.1:0", peer_auth=peer_auth, **settings))  # type: ignore[arg-type]


@asynccontextmanager
async def running_pool(address: str, peer_auth: PeerAuthClientSettings) -> AsyncIterator[WorkerPool]:
    """Run a coordinator's pool."""

    async def fetch(model: pb.Model, files: FetchFiles) -> None:
        await files()

    pool = WorkerPool("test", fetch, channels=ChannelFactory(peer_auth))
    pool.update([address])
    try:
        yield pool
    finally:
        await pool.stop()


async def works(address: str, peer_auth: PeerAuthClientSettings) -> None:
    """Assert that a coordinator opens a session, fetches the tokenizer and makes control calls."""
    async with running_pool(address, peer_auth) as pool:
        session = pool.sessions[0]
        await until(lambda: session.state is SessionState.READY)
        request = control_pb2.GetServerInfoRequest()
        answer = await call_worker(session, lambda control: control.GetServerInfo(request, timeout=5))
        assert answer.sessions


async def connection_error(address: str, peer_auth: PeerAuthClientSettings) -> str:
    """Return the error of a coordinator that cannot connect."""
    async with running_pool(address, peer_auth) as pool:
        session = pool.sessions[0]
        await until(lambda: session.last_error != "not connected yet")
        assert session.state is SessionState.CONNECTING
        return session.last_error


async def call(address: str, method: str, peer_auth: PeerAuthClientSettings) -> grpc.StatusCode:
    """Call a method with an empty request; return the status."""
    async with ChannelFactory(peer_auth).open_channel(address) as channel:
        return await refused_status(channel, method)


async def refused_status(channel: grpc.aio.Channel | BoundedChannel, method: str) -> grpc.StatusCode:
    """Call a method that fails; return the status."""
    read = control_pb2.DrainResponse.FromString
    calling: Any = channel.unary_unary(method, request_serializer=lambda _: b"", response_deserializer=read)
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await calling(None, timeout=5)
    return refused.value.code()
