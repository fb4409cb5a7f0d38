"""Worker addresses: their syntax, and those that never change."""

from collections.abc import Collection

import pytest

from tokenwire.coordinator.fleet.discovery.source import StaticSource, check_address, join_port, split_scheme
from tokenwire.errors import InvalidRequest


@pytest.mark.parametrize(
    ("address", "normalized"),
    [
        ("worker:50051", "worker:50051"),
        ("[fd00::1]:50051", "[fd00::1]:50051"),
        ("unix:/run/worker.sock", "unix:/run/worker.sock"),
        ("http://vllm:8000/", "http://vllm:8000"),
        ("https://vllm:65535", "https://vllm:65535"),
    ],
)
def test_addresses_of_workers_are_normalized(address: str, normalized: str) -> None:
    """So that a slash at the end makes no second worker."""
    assert check_address(address) == normalized


@pytest.mark.parametrize(
    "address",
    ["worker", "worker:", ":50051", "worker:65536", "fd00::1:1", "ftp://x:1", "http://x:1/v1", "a b:1", "unix:"],
)
def test_anything_else_is_rejected_with_the_syntax(address: str) -> None:
    """The error has what was given."""
    with pytest.raises(InvalidRequest, match="is not a worker address: HOST:PORT") as rejected:
        check_address(address)
    assert repr(address) in rejected.value.message


def test_schemes_and_ports_are_split_and_joined() -> None:
    """Also those of IPv6 hosts."""
    assert split_scheme("https://vllm:8000") == ("https://", "vllm:8000")
    assert split_scheme("worker:50051") == ("", "worker:50051")
    assert (join_port("fd00::1", 8), join_port("worker", 8)) == ("[fd00::1]:8", "worker:8")


async def test_fixed_addresses_are_found_once() -> None:
    """All of them."""
    found: list[Collection[str]] = []
    await StaticSource("one:1", "two:1").run(found.append)
    assert found == [("one:1", "two:1")]
