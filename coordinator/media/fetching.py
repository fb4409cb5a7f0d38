"""Fetches a picture from a URL that a client has named, and never from where only this machine could reach it.

An address is checked where it is looked up and again where the socket for it is made, so that what is dialled is what
was checked, whatever a name resolves to meanwhile.
"""

import asyncio
import ipaddress
import socket
from collections.abc import Callable
from typing import Any
from urllib.parse import SplitResult, urljoin, urlsplit

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult

from tokenwire.coordinator.media.addresses import is_public, literal
from tokenwire.coordinator.media.name_lookups import ThreadedLookups, lookups_for
from tokenwire.coordinator.media.settings import MediaSettings
from tokenwire.errors import InvalidRequest, MediaUnavailable

SocketFactory = Callable[[Any], socket.socket]
"""Makes the socket for an address, given as aiohttp's AddrInfoType."""

_LOOKUPS_PER_FETCH = 4
"""Threads that look up names, of all clients, for each fetch that there may be: many outlive theirs."""
_MOST_HOPS = 3
_MOST_URL_CHARS = 8192
_CHUNK_BYTES = 64 * 1024
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
# What a server sends is taken as it is: a compressed reply could be larger than its bytes.
_HEADERS = {"Accept": "image/*", "Accept-Encoding": "identity", "User-Agent": "tokenwire"}


class _NotPublic(OSError):
    """The address is not one of the public internet."""


def plain_socket(address: Any) -> socket.socket:
    """Return a socket for an address."""
    family, kind, protocol, _, _ = address
    return socket.socket(family, kind, protocol)


class GuardedFetcher:
    """Fetches by https, or http if that is allowed, with bounds on addresses, redirects, bytes and time."""

    def __init__(
        self,
        settings: MediaSettings,
        resolver: AbstractResolver | None = None,
        make_socket: SocketFactory = plain_socket,
    ) -> None:
        """`resolver` replaces the system's, in threads."""
        self._settings = settings
        self._networks = tuple(ipaddress.ip_network(network) for network in settings.allowed_networks)
        self._schemes = ("https", "http") if settings.allow_http else ("https",)
        threads = _LOOKUPS_PER_FETCH * settings.max_fetches
        self._resolver = resolver or ThreadedLookups(threads, settings.tenant_fetches)
        self._make_socket = make_socket
        self._session: aiohttp.ClientSession | None = None

    async def close(self) -> None:
        """Close connections."""
        if self._session is not None:
            await self._session.close()

    async def fetch(self, url: str, count: Callable[[int], None] = lambda more: None, share: str = "") -> bytes:
        """Return what is at a URL; `count` is called with the number of bytes of each piece, as it arrives.

        `share` is whose turns its lookups of names take.

        Raises InvalidRequest for one that may not be fetched, else MediaUnavailable; and what `count` does.
        """
        try:
            with lookups_for(share):
                async with asyncio.timeout(self._settings.fetch_timeout_s):
                    return await self._follow(url, count)
        except TimeoutError as error:
            raise MediaUnavailable(
                f"The picture could not be fetched within {self._settings.fetch_timeout_s:g} s.", param="messages"
            ) from error
        except aiohttp.InvalidURL as error:
            raise InvalidRequest("The URL of the picture is invalid.", param="messages") from error
        except (aiohttp.ClientError, OSError, ValueError) as error:
            if _is_refusal(error):
                raise _not_public() from error
            # The reason is not reported: it would tell clients which ports of which machines are open.
            raise MediaUnavailable("The picture could not be fetched.", param="messages") from error

    async def _follow(self, url: str, count: Callable[[int], None]) -> bytes:
        for _ in range(_MOST_HOPS + 1):
            self._check(url)
            async with self._open().get(url, allow_redirects=False, headers=_HEADERS) as response:
                if response.status not in _REDIRECTS:
                    return await self._read(response, count)
                url = urljoin(url, response.headers.get("Location", ""))
        raise MediaUnavailable(f"The picture is behind more than {_MOST_HOPS} redirects.", param="messages")

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            connector = aiohttp.TCPConnector(
                resolver=_GuardedResolver(self._resolver, self._admits),
                socket_factory=self._dial,
                use_dns_cache=False,
                force_close=True,
                limit=self._settings.max_fetches,
            )
            self._session = aiohttp.ClientSession(
                connector=connector, trust_env=False, cookie_jar=aiohttp.DummyCookieJar(), auto_decompress=False
            )
        return self._session

    def _check(self, url: str) -> None:
        """Check what a URL says by itself. Raises InvalidRequest."""
        parts = _split(url)
        if parts.scheme not in self._schemes:
            allowed = " or ".join(("data", *self._schemes))
            raise InvalidRequest(
                f"The URL of a picture must start with {allowed}, not {parts.scheme!r}.", param="messages"
            )
        if parts.username is not None or parts.password is not None:
            raise InvalidRequest("The URL of a picture must not have a user name or password.", param="messages")
        host = (parts.hostname or "").rstrip(".")
        domains = self._settings.allowed_domains
        if domains and host not in domains:
            raise InvalidRequest(
                f"The URL must be from one of the allowed domains: {', '.join(domains)}. Input URL domain: {host}",
                param="messages",
            )
        address = literal(host)
        if address is not None and not is_public(address, self._networks):
            raise _not_public()

    def _admits(self, host: str) -> bool:
        address = literal(host)
        return address is not None and is_public(address, self._networks)

    def _dial(self, address: Any) -> socket.socket:
        host = address[4][0]
        if not self._admits(host):
            raise _NotPublic(f"{host} is not public")
        return self._make_socket(address)

    async def _read(self, response: aiohttp.ClientResponse, count: Callable[[int], None]) -> bytes:
        most = self._settings.max_bytes
        if response.status != 200:
            raise MediaUnavailable(
                f"The picture could not be fetched: its server answered {response.status}.", param="messages"
            )
        if response.headers.get("Content-Encoding", "identity").lower() != "identity":
            raise MediaUnavailable("The picture's server sent it compressed.", param="messages")
        data = bytearray()
        async for chunk in response.content.iter_chunked(_CHUNK_BYTES):
            data += chunk
            if (size := max(len(data), response.content_length or 0)) > most:
                raise too_large(size, most)
            count(len(chunk))
        return bytes(data)


class _GuardedResolver(AbstractResolver):
    """Resolves names, all of whose addresses are public."""

    def __init__(self, resolver: AbstractResolver, admits: Callable[[str], bool]) -> None:
        self._resolver = resolver
        self._admits = admits

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        found = await self._resolver.resolve(host, port, family)
        if any(not self._admits(each["host"]) for each in found):
            raise _NotPublic(f"{host} has an address that is not public")
        return found

    async def close(self) -> None:
        await self._resolver.close()


def too_large(size_bytes: int, most_bytes: int) -> InvalidRequest:
    """Return the error for a picture with more bytes than that; `size_bytes`: as far as it was read."""
    message = f"The picture has at least {size_bytes} bytes, more than {most_bytes} (--max-media-mb)."
    return InvalidRequest(message, param="messages")


def _split(url: str) -> SplitResult:
    if len(url) > _MOST_URL_CHARS:
        raise InvalidRequest(
            f"The URL of a picture has {len(url)} characters, more than {_MOST_URL_CHARS}.", param="messages"
        )
    try:
        parts = urlsplit(url)
        parts.port  # noqa: B018  (it raises)
    except ValueError as error:
        raise InvalidRequest("The URL of the picture is invalid.", param="messages") from error
    return parts


def _not_public() -> InvalidRequest:
    return InvalidRequest("The URL of the picture leads to an address that is not public.", param="messages")


def _is_refusal(error: BaseException) -> bool:
    """Return whether an address was refused, here or in an error that wraps it."""
    causes: list[BaseException | None] = [error]
    for cause in causes:  # grows
        if isinstance(cause, _NotPublic):
            return True
        if isinstance(cause, BaseExceptionGroup):
            causes += cause.exceptions
        elif cause is not None and len(causes) < 16:
            causes += [cause.__cause__, cause.__context__, getattr(cause, "os_error", None)]
    return False
