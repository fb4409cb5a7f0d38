"""Against DNS rebinding: a server on loopback answers only to names that nobody else can give it."""

import ipaddress
from collections.abc import Collection

from starlette.types import Scope

from tokenwire.errors import Forbidden

_LOCAL_DOMAINS = (".localhost", ".internal")
"""Domains that cannot be registered; containers know their host by a name in the second one."""


def is_loopback(address: str) -> bool:
    """Tell whether only this machine reaches an address."""
    return ipaddress.ip_address(address).is_loopback


class AllowedHosts:
    """Refuses requests to other hosts: a page whose own name was made to point here would send its own."""

    def __init__(self, allowed: Collection[str] = ()) -> None:
        """`allowed` are further names, in lower case."""
        self._allowed = frozenset({"", "localhost", *allowed})

    def check(self, scope: Scope) -> None:
        """Check every Host header of a request. Raises Forbidden."""
        for name, value in scope["headers"]:
            if name == b"host" and not self._allows(_name(value)):
                raise _refusal(_name(value))

    def _allows(self, host: str) -> bool:
        return host in self._allowed or host.endswith(_LOCAL_DOMAINS) or _is_address(host)


def _name(header: bytes) -> str:
    """Return the host of a Host header, without its port."""
    host = header.decode("latin-1").strip().lower()
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0].rstrip(".")


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True  # no DNS was asked for it


def _refusal(host: str) -> Forbidden:
    return Forbidden(
        f"This server listens on loopback and is not known as {host[:100]!r}. If it is to be reached by this name, "
        "start it with --allowed-host and the name."
    )
