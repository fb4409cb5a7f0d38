"""Worker addresses in EndpointSlices."""

import json
from pathlib import Path

from tests.kubernetes import endpoint, endpoint_slice
from tokenwire.coordinator.fleet.discovery.endpoint_slices import EndpointSlices

RECORDED = Path(__file__).with_name("rolling_update.jsonl")


def addresses(*slices: dict[str, object], port: str = "grpc") -> list[str]:
    """Return the addresses in slices."""
    known = EndpointSlices(port)
    known.replace(slices)
    return known.addresses()


def test_a_rolling_update_replaces_all_workers_without_a_gap() -> None:
    """Events of a real cluster: pods start, terminate and end; finally all are new."""
    known = EndpointSlices("grpc")
    seen = []
    for line in RECORDED.read_text().splitlines():
        event = json.loads(line)
        known.apply(event["type"], event["object"])
        seen.append({address.removeprefix("10.244.0.").removesuffix(":50051") for address in known.addresses()})

    assert seen[0] == set()
    assert seen[1] == {"10", "11"}
    assert {"10", "11", "12", "13"} in seen
    # 12 terminates: it still serves what it has, but is gone from here.
    assert seen[seen.index({"10", "11", "12", "13"}) + 2] == {"10", "11", "13"}
    assert all(len(each) >= 2 for each in seen[1:])
    assert seen[-1] == {"13", "14", "15"}


def test_ports_are_found_by_number_and_by_name() -> None:
    """A number is used as it is, a name is looked up in the slice's ports."""
    one = endpoint_slice("a", endpoint("10.0.0.1"), port=1234)

    assert addresses(one, port="grpc") == ["10.0.0.1:1234"]
    assert addresses(one, port="7000") == ["10.0.0.1:7000"]
    assert addresses(one, port="http") == []


def test_an_endpoint_that_is_not_ready_counts_until_it_terminates() -> None:
    """Only termination removes a worker; missing conditions count as good."""
    silent = {"addresses": ["10.0.0.4"]}
    one = endpoint_slice("a", endpoint("10.0.0.1", ready=False), endpoint("10.0.0.2", terminating=True), silent)

    assert addresses(one) == ["10.0.0.1:50051", "10.0.0.4:50051"]


def test_endpoints_of_all_slices_are_merged() -> None:
    """Each counts once, until its slice is deleted."""
    known = EndpointSlices("grpc")
    known.replace([endpoint_slice("a", endpoint("10.0.0.1")), endpoint_slice("b", endpoint("10.0.0.2"))])
    known.apply("ADDED", endpoint_slice("c", endpoint("10.0.0.2"), endpoint("10.0.0.3")))
    assert [address[:8] for address in known.addresses()] == ["10.0.0.1", "10.0.0.2", "10.0.0.3"]

    known.apply("DELETED", endpoint_slice("a"))

    assert [address[:8] for address in known.addresses()] == ["10.0.0.2", "10.0.0.3"]


def test_a_pod_terminating_in_one_slice_is_removed_from_all() -> None:
    """While an endpoint moves between slices, the one with its termination is right."""
    old, new = endpoint("10.0.0.1"), endpoint("10.0.0.1", terminating=True)

    assert addresses(endpoint_slice("a", old), endpoint_slice("b", new)) == []


def test_a_pod_with_two_families_is_one_worker() -> None:
    """IPv4 is preferred; IPv6 addresses get brackets."""
    four = endpoint_slice("b", endpoint("10.0.0.1", pod="both"))
    six = endpoint_slice("a", endpoint("fd00::1", pod="both"), endpoint("fd00::2", pod="six"), family="IPv6")

    assert addresses(six, four) == ["10.0.0.1:50051", "[fd00::2]:50051"]
