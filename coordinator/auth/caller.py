"""The caller of a request: what its key allows, or without keys the address that it comes from."""

import ipaddress
from functools import lru_cache

from tokenwire.coordinator.auth.rate_limit import Account
from tokenwire.errors import Forbidden
from tokenwire.process.value_class import value_class


@value_class
class Caller:
    """The tenant of a request and its permissions."""

    tenant: str = ""
    """The unit of fairness and isolation; empty without keys."""
    weight: int = 1
    """Of the tenant: with twice the weight it gets twice the share."""
    min_priority: int | None = None
    """Lower bound on the priority of requests (lower goes first)."""
    models: frozenset[str] | None = None
    """Allowed model names; None: all."""
    account: Account | None = None
    """Its usage; None: it has no limits."""
    share: str = ""
    """Whom a share of the queue is for: the tenant, or without keys the client's address if it is known."""

    def check_model(self, *names: str) -> None:
        """Check that a model with these names is allowed. Raises Forbidden."""
        if self.models is not None and self.models.isdisjoint(names):
            raise Forbidden(f"This API key may not use the model `{names[0]}`.", param="model")


ANYBODY = Caller()

_IPV6_PREFIX = 64
"""Of the addresses that one client may choose from."""


@lru_cache(4096)
def caller_at(host: str) -> Caller:
    """Return the caller without a key at an address, which is that of its network if it is IPv6."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return ANYBODY  # a socket, or what a proxy names instead
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is not None:
            return Caller(share=str(address.ipv4_mapped))
        return Caller(share=str(ipaddress.ip_network((int(address), _IPV6_PREFIX), strict=False)))
    return Caller(share=host)
