"""Protection against DNS rebinding: on loopback, only host names that cannot be registered are accepted."""

import ipaddress
from collections.abc import Collection

from starlette.types import Scope

from tokenwire.errors import Forbidden

_LOCAL_DOMAINS = (".localhost", ".internal")
"""Domains that cannot be registered; containers use the second one for their host."""


def is_loopback(address: str) -> bool:
    """Return whether an address is reachable only from this machine."""
    return ipaddress.ip_address(address).is_loopback


class AllowedHosts:
    """Rejects requests to other hosts, such as those of a page whose domain resolves to this machine."""

    def __init__(self, allowed: Collection[str] = ()) -> None:
        """`allowed` are additional names, in lower case."""
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
    return True  # no DNS is involved


def _refusal(host: str) -> Forbidden:
    return Forbidden(
        f"This server listens on loopback and does not accept the host {host[:100]!r}. To allow it, start the server "
        "with --allowed-host and the name."
    )
