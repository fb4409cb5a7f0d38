"""Which addresses media may be fetched from: public ones, in any of the forms in which an address can hide another."""

import ipaddress
from collections.abc import Iterable

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

# Explicit where versions of Python differ in what they call global.
NOT_PUBLIC = tuple(
    ipaddress.ip_network(network)
    for network in (
        *("0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12"),
        *("192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24", "192.168.0.0/16", "198.18.0.0/15", "198.51.100.0/24"),
        "168.63.129.16/32",  # of each virtual machine's host on Azure
        *("203.0.113.0/24", "224.0.0.0/4", "240.0.0.0/4"),
        *("2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20"),
    )
)
_UNICAST = ipaddress.IPv6Network("2000::/3")
"""All public IPv6 addresses: what is outside is loopback, link-local, unique local, multicast or mapped."""
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
"""Where networks without IPv4 reach it: the last 32 bits are the address that is dialled."""
_ISATAP = (0x00005EFE, 0x02005EFE)
_32_BITS = 0xFFFFFFFF


def is_public(address: Address, allowed: Iterable[Network] = ()) -> bool:
    """Return whether an address is one of the public internet, or in a network that the operator allows."""
    if any(address.version == network.version and address in network for network in allowed):
        return True
    if isinstance(address, ipaddress.IPv6Address):
        if address.scope_id is not None:
            return False
        if address.ipv4_mapped is not None:
            return is_public(address.ipv4_mapped, allowed)
        if address in _NAT64:
            return is_public(ipaddress.IPv4Address(int(address) & _32_BITS), allowed)
        if address not in _UNICAST or (int(address) >> 32 & _32_BITS) in _ISATAP:
            return False
    return address.is_global and not any(
        address.version == network.version and address in network for network in NOT_PUBLIC
    )


def literal(host: str) -> Address | None:
    """Return the address that a host name spells out; None if it is to be looked up."""
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None
