"""Where the chart lets pods connect to: pictures are fetched by coordinators, and by nobody else."""

import ipaddress
from typing import Any

from tests.deploy.cases import SWITCHES
from tests.deploy.rendering import Manifest, of_kind, render
from tokenwire.coordinator.media.addresses import NOT_PUBLIC, is_public

DNS = [{"port": 53, "protocol": "UDP"}, {"port": 53, "protocol": "TCP"}]


def egress(values: dict[str, Any]) -> dict[str, list[Manifest]]:
    """Return the egress rules of each policy that has some."""
    policies = of_kind(render(values), "NetworkPolicy")
    return {
        each["metadata"]["name"].removeprefix("tw-tokenwire-"): each["spec"]["egress"]
        for each in policies
        if each["spec"]["policyTypes"] == ["Egress"]
    }


def networks_of(rule: Manifest) -> list[str]:
    """Return the networks of a rule."""
    return [peer["ipBlock"]["cidr"] for peer in rule["to"] if "ipBlock" in peer]


def test_coordinators_reach_workers_the_api_and_pictures() -> None:
    """By the ports and networks of the options for pictures; and what the values add."""
    dns, workers, api, pictures, further = egress(SWITCHES["egress"])["coordinator-egress"]
    assert dns == {"ports": DNS}
    assert workers["ports"] == [{"port": "grpc", "protocol": "TCP"}]
    assert workers["to"][0]["podSelector"]["matchLabels"]["app.kubernetes.io/component"] == "worker"
    assert networks_of(api) == ["172.18.0.2/32"]
    assert [port["port"] for port in pictures["ports"]] == [443, 80]
    assert networks_of(pictures) == ["0.0.0.0/0", "2000::/3", "10.9.0.0/16"]
    assert further == {"to": [{"podSelector": {"matchLabels": {"app": "redis"}}}]}


def test_coordinators_that_fetch_nothing_reach_no_internet() -> None:
    """With --no-fetch-media, and only https without --allow-http-media."""
    values = SWITCHES["egress"]
    without, https = [
        egress({**values, "coordinator": {"options": options}})["coordinator-egress"]
        for options in ({"no-fetch-media": True}, {})
    ]
    assert [len(without), len(https)] == [4, 5]
    assert not any("0.0.0.0/0" in networks_of(rule) for rule in without if "to" in rule)
    assert [port["port"] for port in https[3]["ports"]] == [443]


def test_an_allowed_address_is_a_network_of_one() -> None:
    """Coordinators take it without a mask, and Kubernetes does not."""
    options = {"allowed-media-network": ["10.1.0.7", "fd00::7", "10.2.0.0/16"]}
    pictures = egress({**SWITCHES["egress"], "coordinator": {"options": options}})["coordinator-egress"][3]
    assert networks_of(pictures)[2:] == ["10.1.0.7/32", "fd00::7/128", "10.2.0.0/16"]


def test_workers_reach_the_hub_only_to_download_models() -> None:
    """Those with files or without a network reach their own nodes, and what the values add."""
    rules = egress(SWITCHES["egress"])
    further = {"to": [{"podSelector": {"matchLabels": {"app": "mirror"}}}]}
    dns, hub, added = rules["hub-egress"]
    assert (dns, added) == ({"ports": DNS}, further)
    assert networks_of(hub) == ["0.0.0.0/0", "2000::/3"]
    assert rules["offline-egress"] == [dns, further]
    nodes = {"app.kubernetes.io/name": "tokenwire", "app.kubernetes.io/instance": "tw", "tokenwire/pool": "files"}
    assert rules["files-egress"] == [dns, {"to": [{"podSelector": {"matchLabels": nodes}}]}, further]


def test_what_is_excepted_is_what_coordinators_do_not_fetch_from() -> None:
    """The two lists are the same; both ends of each network are shut, and every half of a /16 of the rest is open."""
    *_, pictures, _ = egress(SWITCHES["egress"])["coordinator-egress"]
    excepted = [ipaddress.ip_network(each) for peer in pictures["to"][:2] for each in peer["ipBlock"]["except"]]
    assert sorted(map(str, excepted)) == sorted(map(str, NOT_PUBLIC))
    assert not any(is_public(address) for network in excepted for address in (network[0], network[-1]))
    shut = [(int(network[0]), int(network[-1])) for network in excepted if network.version == 4]
    for number in range(0, 2**32, 2**15):
        closed = any(first <= number <= last for first, last in shut)
        assert is_public(ipaddress.IPv4Address(number)) == (not closed), ipaddress.IPv4Address(number)


def test_without_the_switch_nothing_limits_where_pods_connect_to() -> None:
    """Or without policies at all."""
    assert egress({"workers": SWITCHES["egress"]["workers"]}) == {}
    policy = {**SWITCHES["egress"]["networkPolicy"], "enabled": False}
    assert egress({**SWITCHES["egress"], "networkPolicy": policy}) == {}
