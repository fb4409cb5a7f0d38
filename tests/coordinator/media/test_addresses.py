"""Tests of public addresses."""

import ipaddress

import pytest

from tokenwire.coordinator.media.addresses import is_public, literal


@pytest.mark.parametrize(
    "address",
    [
        *("127.0.0.1", "0.0.0.0", "10.1.2.3", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1"),
        *("192.0.0.8", "198.18.0.1", "224.0.0.1", "239.255.255.250", "240.0.0.1", "255.255.255.255", "203.0.113.9"),
        "168.63.129.16",
        *("::", "::1", "fe80::1", "fc00::1", "fd12::1", "ff02::1", "2001:db8::1", "2001::1", "3fff::1", "fec0::1"),
        *("::ffff:127.0.0.1", "::ffff:10.0.0.1", "::127.0.0.1", "64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe"),
        *("64:ff9b:1::808:808", "2002:7f00:1::", "2002:808:808::", "2606:4700::5efe:127.0.0.1", "100::1"),
        *("2606:4700::200:5efe:10.0.0.1", "2606:4700::1%eth0"),
    ],
)
def test_an_address_that_is_not_public_is_refused_in_every_form_that_hides_it(address: str) -> None:
    """Private, local, reserved and multicast addresses are not public, nor are forms that embed them."""
    assert not is_public(ipaddress.ip_address(address))


@pytest.mark.parametrize(
    "address", ["8.8.8.8", "93.184.216.34", "2606:4700:4700::1111", "::ffff:8.8.8.8", "64:ff9b::808:808"]
)
def test_public_addresses_are_admitted_behind_nat64_too(address: str) -> None:
    """Public addresses are public, also where a network reaches IPv4 by NAT64 or the system maps it."""
    assert is_public(ipaddress.ip_address(address))


def test_an_operator_can_allow_a_network_of_its_own() -> None:
    """An allowed network is public in the plain and the mapped form, and no other one is."""
    allowed = [ipaddress.ip_network("10.1.0.0/16")]
    assert is_public(ipaddress.ip_address("10.1.2.3"), allowed)
    assert is_public(ipaddress.ip_address("::ffff:10.1.2.3"), allowed)
    assert not is_public(ipaddress.ip_address("10.2.0.1"), allowed)


def test_only_canonical_addresses_are_literals() -> None:
    """Other spellings of addresses are names: what they resolve to is checked."""
    assert literal("127.0.0.1")
    assert literal("::1")
    assert literal("127.1") is literal("2130706433") is literal("0x7f.1") is literal("example.com") is None
