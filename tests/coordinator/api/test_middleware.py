"""The middleware: records, hosts, drains and headers; keys are in test_authentication.py.

One file, since it tests one module.
"""

import asyncio
import math

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import Message, Receive, Scope, Send

from tests.clock import Clock
from tests.turns import TurnsOfOthers
from tokenwire.coordinator.api.middleware import AllowedHosts, RequestMiddleware
from tokenwire.coordinator.fleet.placed_memory import MemoryClaim, PlacedMemory
from tokenwire.coordinator.generation.context import CONTEXT
from tokenwire.coordinator.http.readiness import Readiness
from tokenwire.coordinator.observability.record import RequestRecord
from tokenwire.coordinator.types import Finish


class RecordListener:
    """Stores records."""

    def __init__(self) -> None:
        self.begun: list[RequestRecord] = []
        self.records: list[RequestRecord] = []

    def on_start(self, record: RequestRecord) -> None:
        """Record it."""
        self.begun.append(record)

    def on_end(self, record: RequestRecord) -> None:
        """Record it."""
        self.records.append(record)


async def _receive() -> Message:
    return {"type": "http.request"}


async def _send(message: Message) -> None:
    pass


async def test_listeners_are_called_at_the_start_and_the_end() -> None:
    """The complete record has what the application recorded and its response."""
    listener = RecordListener()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        assert listener.begun == [scope[CONTEXT].record]
        scope[CONTEXT].record.model = "digits"
        await send({"type": "http.response.start", "status": 404, "headers": []})

    await RequestMiddleware(app, [listener])({**SCOPE, "method": "GET", "headers": []}, _receive, _send)
    (record,) = listener.records
    assert (record.model, record.status, record.outcome) == ("digits", 404, "invalid")
    assert record.duration_s >= 0


async def test_requests_in_flight_are_counted_until_they_end() -> None:
    """For any end."""
    readiness, counts = Readiness(), []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        counts.append(readiness.in_flight)
        raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        await RequestMiddleware(app, readiness=readiness)(
            {"type": "http", "method": "GET", "path": "/", "headers": []}, _receive, _send
        )

    assert (counts, readiness.in_flight) == ([1], 0)


async def test_a_request_gives_back_its_memory_when_its_response_is_sent() -> None:
    """For any end: until then the response is made of what it has."""
    memory = PlacedMemory(100, lambda: None)
    sizes = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        scope[CONTEXT].memory = MemoryClaim(5)
        memory.take(scope[CONTEXT].memory)
        await send({"type": "http.response.start", "status": 200, "headers": []})
        sizes.append(memory.held_bytes)
        raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        await RequestMiddleware(app)({**SCOPE, "method": "GET", "headers": []}, _receive, _send)

    assert (sizes, memory.held_bytes) == ([5], 0)


async def test_a_failing_listener_affects_no_other() -> None:
    """The request is served, and the other listeners are called."""

    class Broken(RecordListener):
        def on_start(self, record: RequestRecord) -> None:
            raise ValueError("cannot begin")

        def on_end(self, record: RequestRecord) -> None:
            raise ValueError("cannot end")

    listener, sent = RecordListener(), []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        sent.append(scope)

    await RequestMiddleware(app, [Broken(), listener])(
        {"type": "http", "method": "GET", "path": "/", "headers": []}, _receive, _send
    )

    assert (len(sent), len(listener.begun), len(listener.records)) == (1, 1, 1)


async def test_an_exception_is_recorded_as_an_error() -> None:
    """The exception is raised again."""
    listener = RecordListener()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        await RequestMiddleware(app, [listener])({**SCOPE, "method": "GET", "headers": []}, _receive, _send)
    assert listener.records[0].outcome == "error"


class Sent:
    """Collects a response."""

    def __init__(self) -> None:
        self.messages: list[Message] = []

    async def __call__(self, message: Message) -> None:
        self.messages.append(message)

    @property
    def headers(self) -> dict[bytes, bytes]:
        """Headers of the response."""
        return dict(self.messages[0]["headers"])


class Handle:
    """A running request."""

    def abort(self) -> None:
        pass

    def explain(self) -> str:
        """Name the worker."""
        return "10.0.0.7:50051"


SCOPE = {"type": "http", "method": "POST", "path": "/v1/completions"}


@pytest.mark.parametrize("names_workers", [True, False])
async def test_headers_name_workers(names_workers: bool) -> None:
    """The worker if enabled, and always whether the reply was resumed."""
    sent = Sent()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        context = scope[CONTEXT]
        context.handle, context.record.finishes = Handle(), [Finish("stop", resumed=True)]
        await send({"type": "http.response.start", "status": 200, "headers": []})

    await RequestMiddleware(app, names_workers=names_workers)({**SCOPE, "headers": []}, _receive, sent)

    assert sent.headers[b"x-tokenwire-resumed"] == b"true"
    assert sent.headers.get(b"x-tokenwire-worker") == (b"10.0.0.7:50051" if names_workers else None)


async def test_a_request_that_outlasts_a_drain_gets_a_503() -> None:
    """The server cancels it, and its client gets Retry-After; other cancellations are raised."""
    readiness, listener = Readiness(), RecordListener()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        raise asyncio.CancelledError

    middleware = RequestMiddleware(app, [listener], readiness=readiness)
    with pytest.raises(asyncio.CancelledError):
        await middleware({**SCOPE, "headers": []}, _receive, _send)
    readiness.out_of_time = True
    sent = Sent()
    await middleware({**SCOPE, "headers": []}, _receive, sent)

    assert sent.messages[0]["status"] == 503
    assert b"retry-after" in sent.headers
    assert [record.status for record in listener.records] == [499, 503]


async def test_a_started_response_is_not_started_again() -> None:
    """Its route ends it."""
    readiness, sent = Readiness(out_of_time=True), Sent()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        raise asyncio.CancelledError

    await RequestMiddleware(app, readiness=readiness)({**SCOPE, "headers": []}, _receive, sent)

    assert [message["type"] for message in sent.messages] == ["http.response.start"]


@pytest.mark.parametrize(
    ("header", "server_s", "allowed_s"),
    [(None, None, None), (b"2.5", None, 2.5), (None, 60.0, 60.0), (b"2.5", 60.0, 2.5), (b"90", 60.0, 60.0)],
)
async def test_a_deadline_counts_from_the_arrival(
    header: bytes | None, server_s: float | None, allowed_s: float | None, time: Clock
) -> None:
    """It is the earlier one of the client's and the server's; reading the body or waiting moves neither."""
    arrival, lefts = time.now, []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        time.now += 2
        context = scope[CONTEXT]
        lefts.append((context.deadline, context.time_left_s()))

    headers = [] if header is None else [(b"x-request-timeout", header)]
    middleware = RequestMiddleware(app, request_timeout_s=server_s, clock=time)
    await middleware({**SCOPE, "headers": headers}, _receive, _send)

    assert lefts == [(None, math.inf) if allowed_s is None else (arrival + allowed_s, allowed_s - 2)]


@pytest.mark.parametrize("value", [b"", b"0", b"-1", b"inf", b"nan", b"soon", b"\xff"])
async def test_a_timeout_that_is_no_time_is_rejected(value: bytes) -> None:
    """By the name of the header, before the application is called."""
    sent, listener = Sent(), RecordListener()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        raise AssertionError("called")

    headers = [(b"x-request-timeout", value)]
    await RequestMiddleware(app, [listener])({**SCOPE, "headers": headers}, _receive, sent)

    assert [(record.status, record.param) for record in listener.records] == [(400, "X-Request-Timeout")]


async def _ok(request: Request) -> Response:
    """Respond to any request."""
    return PlainTextResponse("ok")


def client_allowing(*allowed: str) -> httpx.AsyncClient:
    """Return a client of a server behind the check."""
    app = RequestMiddleware(Starlette(routes=[Route("/", _ok)]), allowed_hosts=AllowedHosts(allowed))
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost")


@pytest.mark.parametrize(
    "host",
    [
        *("localhost", "LocalHost:8000", "localhost.", "app.localhost:80", "host.docker.internal:8000"),
        *("127.0.0.1:8000", "127.8.9.1", "[::1]:8000", "[::1]", "192.168.1.7:8000", "", "llm.example:8000"),
    ],
)
async def test_own_names_and_addresses_are_accepted(host: str) -> None:
    """They do not involve DNS; names allowed by the operator are accepted too."""
    async with client_allowing("llm.example") as client:
        assert (await client.get("/", headers={"Host": host})).status_code == 200


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8000", "127.0.0.1.evil.example", "localhost.evil.example", "[evil.example]"]
)
async def test_a_name_that_resolves_to_this_machine_is_rejected(host: str) -> None:
    """To a browser, a page of that name has the same origin as this server."""
    async with client_allowing("llm.example") as client:
        reply = await client.get("/", headers={"Host": host})

    assert reply.status_code == 403
    assert "--allowed-host" in reply.json()["error"]["message"]


async def test_every_host_header_is_checked() -> None:
    """However many there are."""
    async with client_allowing() as client:
        reply = await client.get("/", headers=[("Host", "localhost"), ("Host", "evil.example")])

    assert reply.status_code == 403


async def test_a_burst_of_requests_begins_in_parts() -> None:
    """What runs already has turns in between."""
    began: list[int] = []
    turns = TurnsOfOthers()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        began.append(turns.count)
        await PlainTextResponse("")(scope, receive, send)

    middleware = RequestMiddleware(app)
    scopes = [{"type": "http", "method": "GET", "path": "/", "headers": [], "query_string": b""} for _ in range(100)]
    async with asyncio.TaskGroup() as requests:
        for scope in scopes:
            requests.create_task(middleware(scope, _receive, _send))

    assert len(began) == 100
    assert max(began.count(turn) for turn in began) < 20
