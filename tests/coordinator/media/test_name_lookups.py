"""Tests of lookups of names: a fake resolver of the system answers when the test says so."""

import asyncio
import socket
import threading
from typing import Any

import pytest

from tokenwire.coordinator.media.name_lookups import ThreadedLookups, lookups_for

ADDRESS = (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("93.184.216.34", 443))
LINK = (socket.AF_INET6, socket.SOCK_STREAM, 6, "", ("fe80::1", 443, 0, 3))


class SlowNames:
    """Answers at once, but for names that start with "slow": those are held until they are let go."""

    def __init__(self) -> None:
        self.go, self.begun = threading.Event(), threading.Event()
        self.asked: list[str] = []
        self.threads: list[threading.Thread] = []

    def __call__(self, host: str, port: int, family: int) -> list[tuple[Any, ...]]:
        """Return an address."""
        self.asked.append(host)
        self.threads.append(threading.current_thread())
        self.begun.set()
        if host.startswith("slow"):
            self.go.wait()
        if host == "unknown":
            raise socket.gaierror("unknown name")
        return [ADDRESS]


async def resolved(lookups: ThreadedLookups, host: str, share: str) -> str:
    """Look up a name for a share; return its address."""
    with lookups_for(share):
        (found,) = await lookups.resolve(host, 443)
    return found["host"]


async def test_the_system_is_asked_for_names_in_other_threads() -> None:
    """Addresses are as aiohttp has them, errors the system's; a thread does not keep the process from exiting."""
    names = SlowNames()
    lookups = ThreadedLookups(2, 1, names)
    (found,) = await lookups.resolve("pictures.test", 443)
    assert (found["hostname"], found["host"], found["port"]) == ("pictures.test", "93.184.216.34", 443)
    with pytest.raises(OSError, match="unknown name"):
        await lookups.resolve("unknown")
    assert all(thread.daemon for thread in names.threads)
    assert threading.current_thread() not in names.threads


async def test_the_systems_resolver_knows_this_machine() -> None:
    """Without a fake, names are the system's."""
    assert "127.0.0.1" in [each["host"] for each in await ThreadedLookups(1, 1).resolve("localhost", 80)]


async def test_an_address_of_a_link_says_which() -> None:
    """What is checked is then no address of the public internet."""
    (found,) = await ThreadedLookups(1, 1, lambda *_: [LINK]).resolve("link.test")
    assert found["host"] == "fe80::1%3"


async def test_lookups_that_were_given_up_count_until_their_threads_return() -> None:
    """One client's names whose server does not answer leave threads to others, however many it goes on to name."""
    names = SlowNames()
    lookups = ThreadedLookups(3, 2, names)
    try:
        slow = [asyncio.create_task(resolved(lookups, f"slow{i}", "a")) for i in range(5)]
        assert await resolved(lookups, "quick", "b") == "93.184.216.34"
        for task in slow:
            task.cancel()
        await asyncio.gather(*slow, return_exceptions=True)
        again = asyncio.create_task(resolved(lookups, "slow again", "a"))
        assert await resolved(lookups, "quick", "b") == "93.184.216.34"
        assert "slow again" not in names.asked
    finally:
        names.go.set()
    assert await again == "93.184.216.34"
    assert sorted(names.asked) == ["quick", "quick", "slow again", "slow0", "slow1"]


def test_a_lookup_may_outlive_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its answer is for nobody then, which is no error."""
    names = SlowNames()
    failed: list[Any] = []
    monkeypatch.setattr(threading, "excepthook", failed.append)

    async def give_up() -> None:
        task = asyncio.create_task(resolved(ThreadedLookups(1, 1, names), "slow", "a"))
        await asyncio.sleep(0)
        await asyncio.to_thread(names.begun.wait)
        task.cancel()

    asyncio.run(give_up())
    names.go.set()
    names.threads[0].join(10)
    assert not names.threads[0].is_alive()
    assert not failed
