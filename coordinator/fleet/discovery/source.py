"""What a source of workers is, and what worker addresses look like."""

import re
from collections.abc import Callable, Collection
from typing import Protocol

from tokenwire.errors import InvalidRequest

Update = Callable[[Collection[str]], None]
"""Takes all addresses of a source, whenever they may have changed."""

_ADDRESS = re.compile(r"unix:.+|(https?://)?(\[[^\]\s]+\]|[^\s:/\[\]@?#]+):(?P<port>\d{1,5})/?")


class Discovery(Protocol):
    """One source of worker addresses."""

    async def run(self, update: Update) -> None:
        """Call `update` at first and with every change, until cancelled; during outages, say nothing."""


class StaticList:
    """Addresses that were given once and for all."""

    def __init__(self, *addresses: str) -> None:
        self._addresses = addresses

    async def run(self, update: Update) -> None:
        """Tell of them."""
        update(self._addresses)


def check_address(address: str) -> str:
    """Return the address of one worker. Raises InvalidRequest, saying what is wrong."""
    match = _ADDRESS.fullmatch(address)
    if match is None or int(match["port"] or 0) > 65535:
        raise InvalidRequest(f"{address!r} is no worker's address: HOST:PORT, unix:PATH or http://HOST:PORT")
    return address.rstrip("/")


def split_scheme(address: str) -> tuple[str, str]:
    """Split off http:// or https://, which stand for servers that speak HTTP."""
    for scheme in ("http://", "https://"):
        if address.startswith(scheme):
            return scheme, address.removeprefix(scheme)
    return "", address


def join_port(host: str, port: int) -> str:
    """Write HOST:PORT; an IPv6 host gets brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
