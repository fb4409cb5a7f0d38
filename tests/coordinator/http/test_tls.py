"""HTTPS: responses over TLS, and reloaded certificates."""

import asyncio
import ssl
from pathlib import Path

import pytest

from tests.certificates import CLIENT, Authority, CertificateFiles
from tests.coordinator.serving import Exchange, HttpReply, connected_to, greet, serving
from tokenwire.coordinator.http.tls import HttpsSettings, https_context
from tokenwire.errors import InvalidRequest


def trust(authority: Authority) -> ssl.SSLContext:
    """Return a client's context."""
    return ssl.create_default_context(cadata=authority.pem.decode())


async def get_over_tls(port: int, context: ssl.SSLContext) -> HttpReply:
    """Make one request on a new connection."""
    async with connected_to(port, context) as client:
        await client.send("/")
        return await client.read_reply()


async def refuses(port: int, context: ssl.SSLContext) -> bool:
    """Return whether a new connection ends without a response."""
    async with connected_to(port, context) as client:
        try:
            await client.send("/")
            return await client.read_all() == b""
        except ssl.SSLError:
            return True


async def test_chunks_arrive_whole_and_in_order(https: ssl.SSLContext, authority: Authority) -> None:
    """Written directly to the transport, as without TLS; the connection is reused."""
    parts = [b"one", b"x" * 300_000, b"last"]

    async def route(exchange: Exchange) -> None:
        await exchange.begin()
        for part in parts:
            exchange.connection.write(part)
            await asyncio.sleep(0)
        await exchange.end()

    async with serving(route, lent=True, context=https) as port, connected_to(port, trust(authority)) as client:
        for _ in range(2):
            await client.send("/")
            reply = await client.read_reply()
            assert (reply.chunks, reply.complete) == (parts, True)


async def test_a_slow_reader_is_congested_and_catches_up(https: ssl.SSLContext, authority: Authority) -> None:
    """Nothing is lost."""
    sizes: list[int] = []
    congested = asyncio.Event()

    async def route(exchange: Exchange) -> None:
        exchange.watch()
        await exchange.begin()
        sizes.append(await exchange.congest())
        congested.set()
        await exchange.drained.wait()
        await exchange.end()

    async with serving(route, lent=True, context=https) as port, connected_to(port, trust(authority)) as client:
        await client.send("/")
        await congested.wait()
        reply = await client.read_reply()

    assert (len(reply.body), reply.complete) == (sizes[0], True)


async def test_a_client_that_reads_slowly_is_not_cut(https: ssl.SSLContext, authority: Authority) -> None:
    """However long it stays congested."""
    stall_timeout_s = 0.4
    congested = asyncio.Event()
    sizes: list[int] = []

    async def route(exchange: Exchange) -> None:
        exchange.watch()
        await exchange.begin()
        sizes.append(await exchange.congest() + 8_000_000)
        exchange.connection.write(bytes(8_000_000))
        congested.set()
        await exchange.drained.wait()
        await exchange.end()

    async with (
        serving(route, lent=True, stall_timeout_s=stall_timeout_s, context=https) as port,
        connected_to(port, trust(authority)) as client,
    ):
        await client.send("/")
        await congested.wait()
        for _ in range(10):
            await asyncio.sleep(stall_timeout_s / 4)
            for _ in range(8):  # records of TLS are of 16 KB
                await client.read_some()
        reply = await client.read_reply()

    assert (len(reply.body), reply.complete) == (sizes[0], True)


async def test_a_stalled_reader_is_cut(https: ssl.SSLContext, authority: Authority) -> None:
    """The reply is incomplete."""
    cut = asyncio.Event()

    async def route(exchange: Exchange) -> None:
        exchange.watch()
        await exchange.begin()
        await exchange.congest()
        await exchange.lost.wait()
        cut.set()

    async with (
        serving(route, lent=True, stall_timeout_s=0.2, context=https) as port,
        connected_to(port, trust(authority)) as client,
    ):
        await client.send("/")
        await cut.wait()

        assert not (await client.read_reply()).complete


async def test_a_disconnect_calls_back(https: ssl.SSLContext, authority: Authority) -> None:
    """Even without a TLS close."""
    noticed = asyncio.Event()

    async def route(exchange: Exchange) -> None:
        exchange.watch()
        await exchange.begin()
        exchange.connection.write(b"hello")
        await exchange.lost.wait()
        noticed.set()

    async with serving(route, lent=True, context=https) as port, connected_to(port, trust(authority)) as client:
        await client.send("/")
        await client.read_some()
        client.leave()
        await noticed.wait()


async def test_new_connections_get_the_new_certificate(
    https: ssl.SSLContext, authority: Authority, pair: CertificateFiles, tmp_path: Path
) -> None:
    """Open ones keep their certificate."""
    following = Authority("next")
    (tmp_path / "next").mkdir()
    async with serving(greet, lent=True, context=https) as port, connected_to(port, trust(authority)) as client:
        await client.send("/")
        await client.read_reply()
        new = following.issue(tmp_path / "next", "server", names=["127.0.0.1"])
        new.cert.rename(pair.cert)
        assert (await get_over_tls(port, trust(authority))).body == b"hello"  # the key is still the old one
        new.key.rename(pair.key)

        assert (await get_over_tls(port, trust(following))).body == b"hello"
        with pytest.raises(ssl.SSLCertVerificationError):
            await get_over_tls(port, trust(authority))
        await client.send("/")
        assert (await client.read_reply()).body == b"hello"


async def test_clients_present_certificates_where_they_are_required(
    authority: Authority, pair: CertificateFiles, tmp_path: Path
) -> None:
    """Verified against the authorities trusted at that time."""
    clients = Authority("clients")
    ca = clients.write(tmp_path / "clients.crt")
    known = trust(authority)
    mine = clients.issue(tmp_path, "mine", usage=CLIENT)
    known.load_cert_chain(mine.cert, mine.key)
    context = https_context(HttpsSettings(pair.cert, pair.key, ca, ssl.CERT_REQUIRED))
    async with serving(greet, lent=True, context=context) as port:
        assert (await get_over_tls(port, known)).body == b"hello"
        assert await refuses(port, trust(authority))
        Authority("others").write(ca)
        assert await refuses(port, known)


def test_incomplete_configuration_is_rejected(pair: CertificateFiles, tmp_path: Path) -> None:
    """The error names the missing flag."""
    ca = tmp_path / "ca.crt"
    with pytest.raises(InvalidRequest, match="--ssl-keyfile needs --ssl-certfile"):
        HttpsSettings(keyfile=pair.key)
    with pytest.raises(InvalidRequest, match="--ssl-cert-reqs needs --ssl-ca-certs"):
        HttpsSettings(pair.cert, pair.key, cert_reqs=2)
    with pytest.raises(InvalidRequest, match="without --ssl-cert-reqs"):
        HttpsSettings(pair.cert, pair.key, ca)
    with pytest.raises(InvalidRequest, match="--ssl-ca-certs: cannot read"):
        https_context(HttpsSettings(pair.cert, pair.key, ca, 2))


def test_a_key_may_be_in_the_file_of_its_certificate(pair: CertificateFiles, tmp_path: Path) -> None:
    """A single file."""
    (both := tmp_path / "both.pem").write_bytes(pair.key.read_bytes() + pair.cert.read_bytes())

    assert https_context(HttpsSettings(both)) is not None
