"""Requests that are too large or too slow, on raw sockets."""

import asyncio
import json
import logging

import pytest

from tests.coordinator.serving import Exchange, SocketClient, connected_to, serving
from tokenwire.coordinator.http.bounded_protocol import MANY_PIECES, MAX_HEADERS, MAX_PIPELINED, ProtocolLimits

HEAD = b"POST / HTTP/1.1\r\nHost: x\r\n"
SMALL = ProtocolLimits(head_bytes=4096)
IMPATIENT = ProtocolLimits(head_timeout_s=0.05, body_timeout_s=0.05, body_bytes_per_s=1e9)


async def never(exchange: Exchange) -> None:
    """A route that must not be reached."""
    raise AssertionError("the request was taken")


async def never_ending(exchange: Exchange) -> None:
    """Wait for the client to leave."""
    exchange.watch()
    await exchange.lost.wait()


async def nothing(exchange: Exchange) -> None:
    """Discard the request without reading a response."""


async def answer(exchange: Exchange) -> None:
    """Respond at once."""
    await exchange.begin()
    exchange.connection.write(b"ok")
    await exchange.end()


async def read_rejection(client: SocketClient) -> tuple[int, str]:
    """Read a rejection and the end of the connection; return its status and message."""
    head, _, body = (await client.read_all()).partition(b"\r\n\r\n")
    return int(head[9:12]), json.loads(body)["error"]["message"]


@pytest.mark.parametrize(
    "head",
    [
        b"GET /" + b"x" * 5000 + b" HTTP/1.1\r\n\r\n",
        HEAD + b"".join(b"X-%d: %s\r\n" % (number, b"x" * 400) for number in range(12)) + b"\r\n",
        HEAD + b"X-Endless: " + b"x" * 5000,
    ],
    ids=["line", "headers", "endless"],
)
async def test_a_head_that_is_too_large_is_rejected(head: bytes) -> None:
    """Its request line, its headers together, or one endless header."""
    async with serving(never, lent=True, limits=SMALL) as port, connected_to(port) as client:
        await client.send_raw(head)

        assert await read_rejection(client) == (
            431,
            "The request's headers are larger than 4096 bytes (--max-head-kb).",
        )


async def test_a_header_that_grows_in_pieces_is_rejected() -> None:
    """The parser would buffer it without limit."""
    async with serving(never, lent=True, limits=SMALL) as port, connected_to(port) as client:
        await client.send_raw(HEAD + b"X-Endless: ")
        for _ in range(5):
            await client.send_raw(b"x" * 1000)
            await asyncio.sleep(0)

        assert (await read_rejection(client))[0] == 431


async def test_too_many_headers_are_rejected() -> None:
    """However short they are."""
    async with serving(never, lent=True) as port, connected_to(port) as client:
        await client.send_raw(HEAD + b"a:b\r\n" * MAX_HEADERS + b"\r\n")

        assert await read_rejection(client) == (431, f"The request has more than {MAX_HEADERS} headers.")


async def test_an_endless_trailer_is_rejected() -> None:
    """Trailers of a chunked body are limited like headers."""
    async with serving(nothing, lent=True, limits=SMALL) as port, connected_to(port) as client:
        await client.send_raw(HEAD + b"Transfer-Encoding: chunked\r\n\r\n1\r\nx\r\n")
        await client.send_raw(b"0\r\nX-Endless: ")
        await asyncio.sleep(0.02)  # a read of its own
        await client.send_raw(b"x" * 5000)

        assert (await read_rejection(client))[0] == 431


async def test_a_large_body_is_not_a_large_head() -> None:
    """Bodies have their own limit; further requests are served."""
    body = b"x" * 100_000
    async with serving(answer, lent=True, limits=SMALL) as port, connected_to(port) as client:
        for _ in range(3):
            await client.send_raw(HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body)
            assert (await client.read_reply()).body == b"ok"


async def test_invalid_http_is_rejected_in_the_shape_of_errors() -> None:
    """The status is 400."""
    async with serving(never, lent=True) as port, connected_to(port) as client:
        await client.send_raw(b"\x16\x03\x01 hello\r\n\r\n")

        assert await read_rejection(client) == (400, "Invalid HTTP request received.")


async def test_a_slow_head_times_out() -> None:
    """Also that of a second request, and one of empty lines only."""
    async with serving(answer, lent=True, limits=IMPATIENT) as port:
        for beginning in (HEAD, b"\r\n"):
            async with connected_to(port) as client:
                await client.send_raw(beginning)
                assert await read_rejection(client) == (
                    408,
                    "The request's headers were not received within 0.05 s (--head-timeout).",
                )
        async with connected_to(port) as client:
            await client.send("/")
            await client.read_reply()
            await client.send_raw(HEAD)
            assert (await read_rejection(client))[0] == 408


async def test_a_silent_connection_is_closed() -> None:
    """No response is sent."""
    async with serving(never, lent=True, limits=IMPATIENT) as port, connected_to(port) as client:
        assert await client.read_all() == b""


async def test_a_connection_with_too_many_pipelined_requests_is_closed() -> None:
    """Their number is not limited by what a read may bring, and each takes memory and time."""
    async with serving(never_ending, lent=True) as port, connected_to(port) as client:
        await client.send_raw((HEAD + b"Content-Length: 0\r\n\r\n") * (MAX_PIPELINED + 2))

        assert await read_rejection(client) == (
            400,
            f"More than {MAX_PIPELINED} requests wait for the reply before them.",
        )


@pytest.mark.parametrize(
    "unfinished",
    [
        HEAD + b"X-Long: " + b"x" * 40_000,
        HEAD + b"".join(b"X-%d: x\r\n" % number for number in range(150)),
        HEAD + b"Content-Length: 60000\r\n\r\n" + b"x" * 40_000,
    ],
    ids=["head", "many headers", "body"],
)
async def test_the_oldest_unfinished_requests_make_room_for_others(unfinished: bytes) -> None:
    """With the option that raises the limit; requests that are complete take nothing of it."""
    async with (
        serving(answer, lent=True, max_receiving_bytes=150_000) as port,
        connected_to(port) as first,
        connected_to(port) as second,
        connected_to(port) as third,
        connected_to(port) as other,
    ):
        for client in (first, second, third):
            await client.send_raw(unfinished)
            await other.send("/")
            assert (await other.read_reply()).body == b"ok"

        status, message = await read_rejection(first)
        assert (status, "0.1431 MiB together (--max-bodies-mb)" in message) == (503, True)
        await third.send_raw(b"x" * 20_000 if b"Length" in unfinished else b"Host: x\r\n\r\n")
        assert (await third.read_reply()).body == b"ok"


async def test_pipelined_requests_take_memory_until_their_turn() -> None:
    """The connection whose reply they wait for is closed: an error would be taken for that reply."""
    async with (
        serving(never_ending, lent=True, max_receiving_bytes=100_000) as port,
        connected_to(port) as client,
        connected_to(port) as other,
    ):
        await client.send("/", *["/" + "x" * 10_000] * 3)
        await other.send("/", *["/" + "x" * 10_000] * 3)

        assert await client.read_all() == b""


async def test_a_body_in_very_many_tiny_pieces_is_rejected() -> None:
    """Each takes a call, so they cost more than their bytes; larger ones may be any number."""
    async with serving(answer, lent=True) as port, connected_to(port) as client, connected_to(port) as other:
        head = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
        await client.send_raw(head + b"1\r\nx\r\n" * (MANY_PIECES + 1))
        assert (await read_rejection(client))[0] == 400

        await other.send_raw(head + (b"50\r\n" + b"x" * 0x50 + b"\r\n") * (MANY_PIECES + 1) + b"0\r\n\r\n")
        assert (await other.read_reply()).body == b"ok"


async def test_a_slow_body_times_out() -> None:
    """The route gets a disconnect."""
    async with serving(nothing, lent=True, limits=IMPATIENT) as port, connected_to(port) as client:
        await client.send_raw(HEAD + b"Content-Length: 100\r\n\r\nx")

        assert await client.read_all() == b""


async def test_a_reply_may_take_longer_than_a_request() -> None:
    """Timeouts end with the request, and do not apply to one that waits behind another."""
    limits = ProtocolLimits(head_timeout_s=1.0, body_timeout_s=1.0)
    slow = asyncio.Event()

    async def route(exchange: Exchange) -> None:
        asyncio.get_running_loop().call_later(1.25 * limits.head_timeout_s, slow.set)
        await slow.wait()
        await answer(exchange)

    async with serving(route, lent=True, limits=limits) as port, connected_to(port) as client:
        await client.send_raw(HEAD + b"Content-Length: 0\r\n\r\n" + HEAD + b"Content-Length: 1\r\n\r\n")
        await client.read_reply()
        await client.send_raw(b"x")

        assert (await client.read_reply()).body == b"ok"


@pytest.mark.parametrize("upgrade", ["h2c", "websocket", "TLS/1.3, h2c"])
@pytest.mark.parametrize(
    ("framing", "body"),
    [("Content-Length: 5", b"hello"), ("Transfer-Encoding: chunked", b"5\r\nhello\r\n0\r\n\r\n")],
    ids=["length", "chunked"],
)
@pytest.mark.parametrize("piece", [1, 7, 10_000])
async def test_a_request_that_offers_an_upgrade_keeps_its_body(
    upgrade: str, framing: str, body: bytes, piece: int
) -> None:
    """Java's HttpClient offers h2c with every request; a server that does not upgrade ignores the offer."""
    offer = f"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: {upgrade}"
    head = f"POST /%20a HTTP/1.1\r\nHost: x\r\n{offer}\r\n{framing}\r\n\r\n"
    exchanges: list[Exchange] = []

    async def route(exchange: Exchange) -> None:
        exchanges.append(exchange)
        await answer(exchange)

    async with serving(route, lent=True) as port, connected_to(port) as client:
        requests = 3 * (head.encode() + body)
        for start in range(0, len(requests), piece):
            await client.send_raw(requests[start : start + piece])
        replies = [await client.read_reply() for _ in range(3)]

    assert [(reply.status, reply.body) for reply in replies] == [(200, b"ok")] * 3
    assert [(exchange.path, exchange.body) for exchange in exchanges] == [("/ a", b"hello")] * 3


async def test_repeated_offers_of_upgrades_are_read_one_after_the_other() -> None:
    """As many as may arrive at once."""
    async with serving(answer, lent=True) as port, connected_to(port) as client:
        offer = b"GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n"
        await client.send_raw(offer * MAX_PIPELINED)

        assert all([(await client.read_reply()).complete for _ in range(MAX_PIPELINED)])


async def test_an_upgrade_does_not_hide_a_head_that_is_too_large() -> None:
    """The same limits apply."""
    async with serving(never, lent=True, limits=SMALL) as port, connected_to(port) as client:
        await client.send_raw(HEAD + b"Connection: Upgrade\r\nUpgrade: h2c\r\nX: " + b"x" * 5000 + b"\r\n\r\n")

        assert (await read_rejection(client))[0] == 431


async def test_connect_is_rejected() -> None:
    """Its target is a host and not a path."""
    async with serving(never, lent=True) as port, connected_to(port) as client:
        await client.send_raw(b"CONNECT example.org:443 HTTP/1.1\r\nHost: example.org:443\r\n\r\n")

        assert (await read_rejection(client))[0] == 400


async def test_a_rejection_before_routing_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """With its reason, because no route gets the request."""
    caplog.set_level(logging.INFO, "tokenwire.coordinator.http.bounded_protocol")
    async with serving(never, lent=True, limits=SMALL) as port, connected_to(port) as client:
        await client.send_raw(b"GET /" + b"x" * 5000 + b" HTTP/1.1\r\n\r\n")
        await read_rejection(client)

    (record,) = caplog.records
    assert record.__dict__["fields"] == {
        "outcome": "invalid",
        "status": 431,
        "error": "The request's headers are larger than 4096 bytes (--max-head-kb).",
    }
