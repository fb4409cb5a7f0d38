"""Workers behind a DNS name."""

import asyncio
import socket

import pytest

from tests.coordinator.fleet.discovery.running_source import run_source
from tests.workers import until
from tokenwire.coordinator.fleet.discovery.dns import DnsSource

SOON = 0.01


def serves_nowhere(address: str) -> bool:
    """Return that no worker takes requests."""
    return False


class Resolver:
    """Replaces the event loop's DNS resolution."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.hosts: list[str] | None = []
        self.queries = 0
        monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", self.getaddrinfo)

    async def getaddrinfo(self, host: str, port: int, type: int) -> list[object]:
        """Return the hosts; raise if the name does not exist."""
        self.queries += 1
        if self.hosts is None:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return [(0, type, 6, "", (each, port)) for each in self.hosts]

    async def query_again(self) -> None:
        """Wait for another complete query."""
        queries = self.queries
        await until(lambda: self.queries > queries + 1)


async def test_every_address_of_a_name_is_a_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of both families; a changed response updates the list; a scheme is prefixed to each."""
    resolver = Resolver(monkeypatch)
    resolver.hosts = ["10.0.0.2", "10.0.0.1", "fd00::1"]
    async with run_source(DnsSource("", "workers", 50051, serves_nowhere, SOON)) as updates:
        await updates.become("10.0.0.1:50051", "10.0.0.2:50051", "[fd00::1]:50051")
        resolver.hosts = ["10.0.0.2"]
        await updates.become("10.0.0.2:50051")
    async with run_source(DnsSource("http://", "workers", 8000, serves_nowhere, SOON)) as updates:
        await updates.become("http://10.0.0.2:8000")


async def test_a_name_that_cannot_be_resolved_changes_nothing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The last addresses stay, which is logged once."""
    resolver = Resolver(monkeypatch)
    resolver.hosts = ["10.0.0.1"]
    async with run_source(DnsSource("", "workers", 1, serves_nowhere, SOON)) as updates:
        await updates.become("10.0.0.1:1")
        resolver.hosts = None
        await resolver.query_again()
        await resolver.query_again()

    assert updates.lists == [["10.0.0.1:1"]]
    assert caplog.text.count("cannot resolve workers") == 1


async def test_a_serving_worker_stays_without_its_dns_record(monkeypatch: pytest.MonkeyPatch) -> None:
    """An address missing in a response stays while its worker takes requests."""
    resolver = Resolver(monkeypatch)
    resolver.hosts = ["10.0.0.1", "10.0.0.2"]
    serving = {"10.0.0.1:1"}
    async with run_source(DnsSource("", "workers", 1, serving.__contains__, SOON)) as updates:
        await updates.become("10.0.0.1:1", "10.0.0.2:1")
        resolver.hosts = []
        await updates.become("10.0.0.1:1")
        await resolver.query_again()
        serving.clear()
        await updates.become()
