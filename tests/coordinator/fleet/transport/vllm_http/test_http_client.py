"""The HTTP client of a plain vLLM server."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from tokenwire.coordinator.fleet.transport.vllm_http.http_client import VllmHttpClient
from tokenwire.errors import EngineFailed, InvalidRequest, NotFound, Overloaded, Unavailable, WorkerLost


@asynccontextmanager
async def client_answered_by(
    respond: Callable[[web.Request], Awaitable[web.StreamResponse]],
) -> AsyncIterator[VllmHttpClient]:
    """Serve every request with what this returns."""
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", respond)
    async with TestServer(app) as server:
        client = VllmHttpClient(str(server.make_url("")).rstrip("/"), None)
        try:
            yield client
        finally:
            await client.close()


@asynccontextmanager
async def served_client(status: int, *pieces: bytes) -> AsyncIterator[VllmHttpClient]:
    """Serve every request with this status and body, a piece at a time."""

    async def respond(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(status=status)
        await response.prepare(request)
        for piece in pieces:
            await response.write(piece)
        return response

    async with client_answered_by(respond) as client:
        yield client


@pytest.mark.parametrize(
    ("status", "kind", "message"),
    [
        (400, InvalidRequest, "because"),
        (404, InvalidRequest, "because"),
        (401, Unavailable, "the server responded with 401: because"),
        (429, Overloaded, "because"),
        (503, Unavailable, "because"),
        (500, EngineFailed, "because"),
    ],
)
async def test_errors_keep_their_meaning(status: int, kind: type[Exception], message: str) -> None:
    """A wrong key is no fault of the client's."""
    async with served_client(status, b'{"error": {"message": "because"}}') as client:
        with pytest.raises(kind) as failed:
            await client.post("/x", {})
    assert str(failed.value) == message


async def test_events_are_read_however_they_are_cut() -> None:
    """Up to the end that the server announces."""
    async with served_client(200, b'data: {"a"', b': 1}\n\ndata: {"b": 2}\n', b"\ndata: [DONE]\n\n") as client:
        assert [event async for event in client.stream("/x", {}, {})] == [{"a": 1}, {"b": 2}]


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (b'data: {"a": 1}\n\n', WorkerLost),
        (b'data: {"error": {"message": "it broke", "code": 500}}\n\n', EngineFailed),
        (b'data: {"error": {"message": "too long", "code": 400}}\n\n', InvalidRequest),
        (b"data: <html>\n\n", EngineFailed),
    ],
)
async def test_a_stream_without_its_end_has_failed(body: bytes, kind: type[Exception]) -> None:
    """It broke off, or ends with an error event."""
    async with served_client(200, body) as client:
        with pytest.raises(kind):
            [event async for event in client.stream("/x", {}, {})]


async def test_an_empty_body_is_nothing_and_text_is_text() -> None:
    """As of /health, and of /metrics."""
    async with served_client(200) as client:
        assert await client.get("/health") is None
    async with served_client(200, b"x 1") as client:
        assert await client.text("/metrics", 5) == "x 1"
        with pytest.raises(EngineFailed, match="not JSON"):
            await client.get("/models")


async def test_a_server_that_is_not_there_is_lost() -> None:
    """Without a response it may have died."""
    client = VllmHttpClient("http://127.0.0.1:1", None)
    with pytest.raises(WorkerLost):
        await client.get("/health")
    await client.close()


async def test_a_client_that_is_closed_has_lost_its_server() -> None:
    """Whoever still waits for a response is told so."""
    async with served_client(200) as client:
        await client.close()
        with pytest.raises(WorkerLost, match="the session has ended"):
            await client.get("/health")


async def test_a_missing_route_is_told_apart() -> None:
    """From what a route rejects; and a response may be other than JSON."""
    async with served_client(404, b'{"detail": "Not Found"}') as client:
        with pytest.raises(NotFound):
            await client.content("/pooling", {})
    async with served_client(200, b"\x00", b"\x01") as client:
        assert await client.content("/pooling", {}) == b"\x00\x01"


@pytest.mark.parametrize("pieces", [[b'{"a": ', b"1"], [b'{"a": "', b"x" * 100_000, b'"']])
async def test_a_body_in_pieces_is_sent_with_its_length(pieces: list[bytes]) -> None:
    """So that a server can refuse it by its size; a long one is never joined."""
    received: list[tuple[str | None, bytes]] = []

    async def keep(request: web.Request) -> web.Response:
        received.append((request.headers.get("Content-Length"), await request.read()))
        return web.json_response([request.content_type, request.headers.get("X-Own")])

    async with client_answered_by(keep) as client:
        assert await client.post("/x", pieces, {"X-Own": "1"}) == ["application/json", "1"]

    body = b"".join([*pieces, b"}"])
    assert received == [(str(len(body)), body)]


async def test_a_long_response_is_handed_on_as_it_comes() -> None:
    """Its long lists are not part of what is returned; what is no JSON has failed."""
    found: list[int] = []
    async with served_client(200, b'{"a": [1, 2', b'3], "b": 4}') as client:
        assert await client.post_long("/x", {}, {}, {"a": found.append}) == {"a": [], "b": 4}
    assert found == [1, 23]
    async with served_client(200, b'{"a": [1, ') as client:
        with pytest.raises(EngineFailed, match="not JSON"):
            await client.post_long("/x", {}, {}, {"a": found.append})
