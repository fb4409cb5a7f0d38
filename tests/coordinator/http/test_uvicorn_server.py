"""The server's timeouts for TLS handshakes and drains."""

import asyncio
import ssl
from collections.abc import Callable

import pytest
import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send

from tests.coordinator.serving import HttpReply, ServerWithoutSignals, connected_to, greet, serving
from tests.workers import until
from tokenwire.coordinator.http.bounded_protocol import ProtocolLimits
from tokenwire.coordinator.http.readiness import Readiness
from tokenwire.process.sockets import bind


@pytest.mark.parametrize("begun", [b"", b"\x16\x03\x01\x02\x00\x01"], ids=["nothing", "half a hello"])
async def test_a_handshake_that_never_ends_is_cut(https: ssl.SSLContext, begun: bytes) -> None:
    """By the timeout for headers, not the event loop's default."""
    limits = ProtocolLimits(head_timeout_s=0.05)
    async with serving(greet, lent=True, limits=limits, context=https) as port, connected_to(port) as client:
        await client.send_raw(begun)

        assert await client.at_end()


class CountingServer(ServerWithoutSignals):
    """Counts how often it looks whether it is to end."""

    looks = 0

    async def on_tick(self, counter: int) -> bool:
        """Count a look."""
        self.looks += 1
        return await super().on_tick(counter)


async def test_an_idle_server_wakes_for_nothing_but_its_end() -> None:
    """Which may come from any thread: it looks once, when it begins, and then waits."""
    config = uvicorn.Config(greet, http="httptools", ws="none", lifespan="off", log_config=None)
    server = CountingServer(config, Readiness(), handshake_timeout_s=1, drain_timeout_s=1)
    running = asyncio.create_task(server.serve(sockets=[bind("127.0.0.1", 0)]))
    await until(lambda: server.looks > 0)

    async with asyncio.timeout(20):
        await asyncio.to_thread(setattr, server, "should_exit", True)
        await running

    assert server.looks == 1


async def drained(drain_timeout_s: float, route: Callable[[Readiness], ASGIApp]) -> tuple[HttpReply, Readiness]:
    """Stop a server during a request; return its response and the server's state."""
    readiness, begun = Readiness(), asyncio.Event()
    app = route(readiness)

    async def announced(scope: Scope, receive: Receive, send: Send) -> None:
        begun.set()
        await app(scope, receive, send)

    config = uvicorn.Config(announced, http="httptools", ws="none", lifespan="off", log_config=None)
    server = ServerWithoutSignals(config, readiness, handshake_timeout_s=1, drain_timeout_s=drain_timeout_s)
    bound = bind("127.0.0.1", 0)
    running = asyncio.create_task(server.serve(sockets=[bound]))
    await until(lambda: server.started)
    async with asyncio.timeout(20), connected_to(bound.getsockname()[1]) as client:
        await client.send("/")
        await begun.wait()
        server.should_exit = True
        reply = await client.read_reply()
    await running
    return reply, readiness


async def respond_with(send: Send, body: bytes) -> None:
    """Send a whole response."""
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": body})


async def test_a_drain_waits_for_running_requests() -> None:
    """They end as if nothing happened."""

    def route(readiness: Readiness) -> ASGIApp:
        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            await asyncio.sleep(0.05)
            await respond_with(send, b"done")

        return app

    reply, readiness = await drained(5, route)

    assert (reply.body, readiness.out_of_time) == (b"done", False)


async def test_requests_that_outlast_the_drain_are_ended(caplog: pytest.LogCaptureFixture) -> None:
    """Each is cancelled, and may still send what became of it."""

    def route(readiness: Readiness) -> ASGIApp:
        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                await respond_with(send, b"out of time" if readiness.out_of_time else b"?")

        return app

    reply, _ = await drained(0.05, route)

    assert reply.body == b"out of time"
    assert "drain deadline passed: ending 1 request" in caplog.text
