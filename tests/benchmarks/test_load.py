"""The load generator's client, against a server with scripted responses."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from benchmarks.load import StreamResult, http_request, stream

CHUNKED = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
REQUEST = http_request("http://x", "/v1/chat/completions", {"stream": True})


def event(data: object) -> bytes:
    """Render one server-sent event as one HTTP chunk."""
    payload = b"data: " + (data if isinstance(data, bytes) else json.dumps(data, separators=(",", ":")).encode())
    return b"%x\r\n%b\n\n\r\n" % (len(payload) + 2, payload)


def delta(text: str, finish_reason: str | None = None) -> bytes:
    """Render a chunk of a chat completion."""
    return event({"choices": [{"index": 0, "delta": {"content": text}, "finish_reason": finish_reason}]})


USAGE = event({"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 42, "total_tokens": 49}})
DONE = event(b"[DONE]") + b"0\r\n\r\n"
FULL = CHUNKED + delta("Hello") + delta(" you", "length") + USAGE + DONE


@asynccontextmanager
async def answering_with(*pieces: bytes, close: bool = False) -> AsyncIterator[str]:
    """Answer every request with these pieces, each sent by itself, and keep the connection open or close it."""

    answering: set[asyncio.Task[None] | None] = set()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        answering.add(asyncio.current_task())
        await reader.readuntil(b"\r\n\r\n")
        for piece in pieces:
            writer.write(piece)
            await asyncio.sleep(0)
        if not close:
            await reader.read(100)  # the request's body, then the end
            while await reader.read(100):
                pass
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        await asyncio.gather(*(task for task in answering if task))  # they end with their connections


async def result_of(*pieces: bytes, close: bool = False) -> StreamResult:
    """Stream one request from a server that sends this."""
    async with answering_with(*pieces, close=close) as url:
        return await asyncio.wait_for(stream(url, REQUEST), 10)


async def test_a_full_stream_is_counted() -> None:
    """Events without [DONE], tokens by the server's own count, the reason, and the end, though nobody hangs up."""
    result = await result_of(FULL)

    assert (result.status, result.complete) == (200, True)
    assert (result.events, result.completion_tokens, result.finish_reason) == (3, 42, "length")


@pytest.mark.parametrize("size", [1, 2, 3, 5, 7, 64])
async def test_a_stream_in_pieces_is_counted_alike(size: int) -> None:
    """However the network cuts a stream, the figures are the same."""
    result = await result_of(*(FULL[start : start + size] for start in range(0, len(FULL), size)))

    assert (result.status, result.complete) == (200, True)
    assert (result.events, result.completion_tokens, result.finish_reason) == (3, 42, "length")


async def test_text_does_not_count_as_events() -> None:
    """A model's text about events, usage or ends changes no figure."""
    sent = 'data: {"x": 1}\n\ndata: [DONE]\n\n0\r\n\r\n{"completion_tokens":99,"finish_reason":"fun"}'
    result = await result_of(CHUNKED, delta(sent), delta(sent, "stop"), USAGE, DONE)

    assert (result.events, result.completion_tokens, result.finish_reason) == (3, 42, "stop")
    assert result.complete


@pytest.mark.parametrize("size", [5, 64])
async def test_a_body_is_kept_if_asked_for(size: int) -> None:
    """As it came, in its chunks and without the head; else memory is not spent on it."""
    async with answering_with(*(FULL[start : start + size] for start in range(0, len(FULL), size))) as url:
        kept, other = await stream(url, REQUEST, keep_body=True), await stream(url, REQUEST)

    assert kept.body == bytearray(FULL.removeprefix(CHUNKED))
    assert other.body is None


@pytest.mark.parametrize("sent", [b"", CHUNKED, CHUNKED + delta("Hel"), CHUNKED + delta("Hello", "stop") + USAGE])
async def test_a_stream_that_breaks_off_is_not_complete(sent: bytes) -> None:
    """A connection that closes before [DONE] ends the request, with what had come until then."""
    result = await result_of(sent, close=True)

    assert not result.complete
    assert result.status == (200 if sent else 0)
    assert result.events == sent.count(b"data: ")


@pytest.mark.parametrize("body", [b'{"error": {"message": "later"}}', b""])
async def test_an_error_ends_the_request(body: bytes) -> None:
    """Another status than 200 is the result, with a body or without, and though the connection stays open."""
    head = b"HTTP/1.1 429 Too Many Requests\r\nContent-Length: %d\r\n\r\n" % len(body)

    result = await result_of(head, body)

    assert (result.status, result.complete, result.events) == (429, False, 0)


async def test_times_are_those_of_arrivals() -> None:
    """The first token's time counts from the request; gaps lie between arrivals, one less than there are."""
    result = StreamResult(started=10.0, arrivals=[10.5, 11.0, 13.0])

    assert result.time_to_first_token == 0.5
    assert result.gaps == [0.5, 2.0]
    assert StreamResult(started=10.0).time_to_first_token is None
    assert StreamResult(started=10.0).gaps == []


async def test_a_head_alone_is_no_arrival() -> None:
    """The time to the first token does not end with the response's head."""
    result = await result_of(CHUNKED, close=True)

    assert result.arrivals == []


async def test_a_server_that_is_not_there_is_an_error() -> None:
    """Nobody listening is not a slow server: it is raised."""
    async with answering_with(FULL) as url:
        pass

    with pytest.raises(OSError, match="Connect call failed"):
        await stream(url, REQUEST)


def test_a_request_is_plain_http() -> None:
    """The rendered request names the host and carries its body as JSON, with its length."""
    head, _, body = http_request("http://localhost:8000/", "/v1/completions", {"prompt": "é"}).partition(b"\r\n\r\n")

    assert json.loads(body) == {"prompt": "é"}
    lines = head.decode().split("\r\n")
    assert lines[0] == "POST /v1/completions HTTP/1.1"
    assert {"Host: localhost:8000", "Content-Type: application/json", f"Content-Length: {len(body)}"} <= set(lines)
