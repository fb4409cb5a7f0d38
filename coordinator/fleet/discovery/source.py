"""The interface of a discovery source, and the syntax of worker addresses."""

import re
from collections.abc import Callable, Collection
from typing import Protocol

from tokenwire.errors import InvalidRequest

Update = Callable[[Collection[str]], None]
"""Called with all addresses of a source whenever they may have changed."""

_ADDRESS = re.compile(r"unix:.+|(https?://)?(\[[^\]\s]+\]|[^\s:/\[\]@?#]+):(?P<port>\d{1,5})/?")


class DiscoverySource(Protocol):
    """One source of worker addresses."""

    async def run(self, update: Update) -> None:
        """Call `update` initially and on every change, until cancelled; not during outages."""


class StaticSource:
    """Fixed addresses."""

    def __init__(self, *addresses: str) -> None:
        self._addresses = addresses

    async def run(self, update: Update) -> None:
        """Call `update` once."""
        update(self._addresses)


def check_address(address: str) -> str:
    """Return the normalized address of one worker. Raises InvalidRequest with the reason."""
    match = _ADDRESS.fullmatch(address)
    if match is None or int(match["port"] or 0) > 65535:
        raise InvalidRequest(f"{address!r} is not a worker address: HOST:PORT, unix:PATH or http://HOST:PORT")
    return address.rstrip("/")


def split_scheme(address: str) -> tuple[str, str]:
    """Split off http:// or https://, which denote plain vLLM servers."""
    for scheme in ("http://", "https://"):
        if address.startswith(scheme):
            return scheme, address.removeprefix(scheme)
    return "", address


def join_port(host: str, port: int) -> str:
    """Return HOST:PORT; an IPv6 host gets brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
