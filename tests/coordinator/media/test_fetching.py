"""Tests of guarded fetching: a spy on sockets sees what is dialled."""

import asyncio
import socket
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web
from aiohttp.abc import AbstractResolver, ResolveResult

from tests.coordinator.media import pictures
from tokenwire.coordinator.media.fetching import GuardedFetcher
from tokenwire.coordinator.media.name_lookups import ThreadedLookups
from tokenwire.coordinator.media.settings import MediaSettings
from tokenwire.errors import InvalidRequest, MediaUnavailable, Overloaded

PUBLIC = "93.184.216.34"
HTTP = MediaSettings(allow_http=True, fetch_timeout_s=20.0, max_bytes=1000)


class Names(AbstractResolver):
    """Resolves names by a table; a name with several lists of addresses gets the next one each time."""

    def __init__(self, **names: list[str] | list[list[str]]) -> None:
        self.names: dict[str, Any] = {name.replace("_", "."): found for name, found in names.items()}

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        """Return the addresses of a name."""
        found = self.names.get(host)
        if found is None:
            raise OSError("unknown name")
        addresses = found.pop(0) if isinstance(found[0], list) else found
        return [
            ResolveResult(
                hostname=host,
                host=address,
                port=port,
                family=socket.AF_INET6 if ":" in address else socket.AF_INET,
                proto=0,
                flags=0,
            )
            for address in addresses
        ]

    async def close(self) -> None:
        """Nothing is open."""


class Spy:
    """Makes sockets that record which address they are to connect to, and reach a server of the test instead."""

    def __init__(self, port: int) -> None:
        self.dialled: list[str] = []
        self.port = port

    def __call__(self, address: Any) -> socket.socket:
        """Return such a socket."""
        spy = self

        class Redirected(socket.socket):
            def connect(self, to: Any) -> None:
                spy.dialled.append(to[0])
                super().connect(("127.0.0.1", spy.port))

        return Redirected(socket.AF_INET, socket.SOCK_STREAM)


@asynccontextmanager
async def server(location: str = "") -> AsyncIterator[int]:
    """Serve a picture, and what a hostile server would answer; yield the port."""
    parked = asyncio.Event()

    async def endless(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        try:
            while True:
                await response.write(bytes(1000))
        except OSError:
            return response

    async def silent(request: web.Request) -> web.Response:
        await parked.wait()
        return web.Response()

    async def redirect(request: web.Request) -> web.Response:
        return web.Response(status=302, headers={"Location": request.query.get("to", location)})

    async def packed(request: web.Request) -> web.Response:
        return web.Response(body=b"x", headers={"Content-Encoding": "gzip"})

    async def picture(request: web.Request) -> web.Response:
        headers = {"Content-Type": "text/html", "Content-Encoding": request.query.get("coding", "identity")}
        return web.Response(body=pictures.png(), headers=headers)

    app = web.Application()
    app.router.add_get("/picture", picture)
    app.router.add_get("/endless", endless)
    app.router.add_get("/silent", silent)
    app.router.add_get("/redirect", redirect)
    app.router.add_get("/packed", packed)
    runner = web.AppRunner(app, shutdown_timeout=0)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield runner.addresses[0][1]
    finally:
        parked.set()
        await runner.cleanup()


async def fetch_from_server(url: str, settings: MediaSettings = HTTP, **names: Any) -> tuple[bytes, list[str]]:
    """Fetch from the test's server; return the bytes and what was dialled."""
    async with server() as port:
        spy = Spy(port)
        fetcher = GuardedFetcher(settings, Names(pictures_test=[PUBLIC], **names), spy)
        try:
            return await fetcher.fetch(url), spy.dialled
        finally:
            await fetcher.close()
            refused = [address for address in spy.dialled if address != PUBLIC]
            assert not refused, f"dialled {refused}"


async def test_a_picture_is_fetched_from_the_address_that_was_checked() -> None:
    """The address that the name resolved to is dialled, and what its server sends is returned."""
    assert await fetch_from_server("http://pictures.test/picture") == (pictures.png(), [PUBLIC])


async def test_codings_have_no_case() -> None:
    """A picture that says in capitals that it is not compressed is taken."""
    assert (await fetch_from_server("http://pictures.test/picture?coding=IDENTITY"))[0] == pictures.png()


async def test_a_fetch_looks_up_names_in_the_turns_of_its_share() -> None:
    """A lookup that does not end is the share's that asked for it; the name is another's picture meanwhile."""
    go = threading.Event()

    def look_up(host: str, port: int, family: int) -> list[tuple[Any, ...]]:
        if host == "slow.test":
            go.wait()
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (PUBLIC, port))]

    async with server() as port:
        fetcher = GuardedFetcher(HTTP, ThreadedLookups(2, 1, look_up), Spy(port))
        slow = [asyncio.create_task(fetcher.fetch("http://slow.test/picture", share="a")) for _ in range(3)]
        try:
            assert await fetcher.fetch("http://pictures.test/picture", share="b") == pictures.png()
        finally:
            go.set()
        assert await asyncio.gather(*slow) == [pictures.png()] * 3
        await fetcher.close()


async def test_redirects_are_followed_and_checked_one_by_one() -> None:
    """A redirect to a public address is followed, relative ones too."""
    assert (await fetch_from_server("http://pictures.test/redirect?to=/picture"))[0] == pictures.png()


@pytest.mark.parametrize(
    "url",
    [
        *("http://127.0.0.1/picture", "http://[::1]/picture", "http://[::ffff:127.0.0.1]/", "http://0.0.0.0/"),
        *("http://169.254.169.254/latest/meta-data", "http://100.64.0.1/", "http://[64:ff9b::7f00:1]/"),
        *("http://[64:ff9b::a9fe:a9fe]/", "http://[2002:7f00:1::]/", "http://[::127.0.0.1]/", "http://[fe80::1%25lo]/"),
        *("http://localhost./picture", "http://local.test/", "http://mixed.test/", "http://six.test/"),
        *("http://2130706433/", "http://127.1/", "http://0x7f.1/", "http://0177.0.0.1/", "http://127.0.0.1./"),
        *("file:///etc/passwd", "ftp://pictures.test/", "gopher://pictures.test/"),
        *("http://user@pictures.test/picture", "http://user:secret@pictures.test/", "http://:@pictures.test/"),
        *("http://pictures.test:99999/", "http://[broken/", "http://" + "a" * 9000),
    ],
)
@pytest.mark.parametrize("way", ["directly", "by a redirect"])
async def test_nothing_private_is_dialled(url: str, way: str) -> None:
    """Whatever a URL or a redirect says, no socket is connected to anything but a public address."""
    names = {"local_test": ["127.0.0.1"], "mixed_test": [PUBLIC, "10.0.0.1"], "six_test": ["64:ff9b::7f00:1"]}
    names["localhost"] = names["localhost."] = ["127.0.0.1"]
    for spelled in ("2130706433", "127.1", "0x7f.1", "0177.0.0.1", "127.0.0.1."):
        names[spelled] = ["127.0.0.1"]
    async with server(location=url) as port:
        spy = Spy(port)
        fetcher = GuardedFetcher(HTTP, Names(pictures_test=[PUBLIC], **names), spy)
        with pytest.raises(InvalidRequest):
            await fetcher.fetch(url if way == "directly" else "http://pictures.test/redirect")
        await fetcher.close()
    assert spy.dialled == ([] if way == "directly" else [PUBLIC])


@pytest.mark.parametrize("url", ["//pictures.test/picture", "picture", "", "http:///picture", "data:,x"])
async def test_a_url_without_scheme_or_host_is_refused(url: str) -> None:
    """What does not say where it leads is not fetched."""
    with pytest.raises(InvalidRequest):
        await fetch_from_server(url)


async def test_a_name_that_is_rebound_between_check_and_connection_gains_nothing() -> None:
    """A name is resolved once per connection; one whose next answer is private is refused at the redirect."""
    with pytest.raises(InvalidRequest, match="not public"):
        await fetch_from_server("http://rebound.test/redirect?to=/picture", rebound_test=[[PUBLIC], ["127.0.0.1"]])


async def test_a_socket_is_not_made_for_a_private_address_that_no_resolver_has_seen() -> None:
    """The last check is where the socket is made: it holds even if the ones before it were passed."""
    fetcher = GuardedFetcher(HTTP, Names())
    with pytest.raises(OSError, match="not public"):
        fetcher._dial((socket.AF_INET, socket.SOCK_STREAM, 0, "", ("10.0.0.1", 80)))


async def test_http_is_fetched_only_if_it_is_allowed() -> None:
    """By default a picture comes by https."""
    with pytest.raises(InvalidRequest, match="must start with data or https"):
        await fetch_from_server("http://pictures.test/picture", MediaSettings())


async def test_allowed_domains_bound_redirects_too() -> None:
    """With a list of hosts, no other host is asked, whoever names it."""
    settings = MediaSettings(allow_http=True, allowed_domains=("pictures.test",))
    assert (await fetch_from_server("http://pictures.test/picture", settings))[0] == pictures.png()
    with pytest.raises(InvalidRequest, match="allowed domains"):
        await fetch_from_server("http://other.test/picture", settings, other_test=[PUBLIC])
    with pytest.raises(InvalidRequest, match="allowed domains"):
        await fetch_from_server("http://pictures.test/redirect?to=http://other.test/", settings, other_test=[PUBLIC])


async def test_a_network_that_the_operator_allows_is_dialled() -> None:
    """A private network can be allowed, for a store of one's own."""
    async with server() as port:
        fetcher = GuardedFetcher(MediaSettings(allow_http=True, allowed_networks=("127.0.0.0/8",)))
        assert await fetcher.fetch(f"http://127.0.0.1:{port}/picture") == pictures.png()
        await fetcher.close()


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("/nothing", "answered 404"),
        ("/packed", "compressed"),
        ("/redirect?to=/redirect", "redirect"),
    ],
)
async def test_a_server_that_has_no_picture_is_an_error_of_the_request(path: str, reason: str) -> None:
    """What the picture's server does wrong is 422, which clients do not retry."""
    with pytest.raises(MediaUnavailable, match=reason) as raised:
        await fetch_from_server(f"http://pictures.test{path}")
    assert raised.value.http_status == 422


async def test_a_body_without_end_is_cut_at_the_limit() -> None:
    """No more than the limit is read, however much is sent."""
    with pytest.raises(InvalidRequest, match="max-media-mb"):
        await fetch_from_server("http://pictures.test/endless")


async def test_every_piece_is_counted_as_it_arrives() -> None:
    """Who counts the bytes can end the fetch."""
    counted: list[int] = []

    def count(more: int) -> None:
        counted.append(more)
        if sum(counted) > len(pictures.png()):
            raise Overloaded("too many")

    async with server() as port:
        fetcher = GuardedFetcher(HTTP, Names(pictures_test=[PUBLIC]), Spy(port))
        assert await fetcher.fetch("http://pictures.test/picture", count) == pictures.png()
        assert sum(counted) == len(pictures.png())
        with pytest.raises(Overloaded, match="too many"):
            await fetcher.fetch("http://pictures.test/picture", count)
        await fetcher.close()


async def test_a_server_that_never_answers_costs_the_timeout() -> None:
    """A fetch ends at its deadline, with all of its redirects."""
    with pytest.raises(MediaUnavailable, match="within"):
        await fetch_from_server("http://pictures.test/silent", MediaSettings(allow_http=True, fetch_timeout_s=0.05))


async def test_errors_do_not_tell_which_ports_are_open() -> None:
    """A refused connection and an unknown name are one message."""
    with pytest.raises(MediaUnavailable) as unknown:
        await fetch_from_server("http://unknown.test/")
    fetcher = GuardedFetcher(HTTP, Names(pictures_test=[PUBLIC]), Spy(1))
    with pytest.raises(MediaUnavailable) as refused:
        await fetcher.fetch("http://pictures.test/")
    await fetcher.close()
    assert unknown.value.message == refused.value.message == "The picture could not be fetched."
