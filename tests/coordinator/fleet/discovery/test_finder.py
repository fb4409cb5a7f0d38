"""All sources of workers together."""

import pytest

from tests.coordinator.fleet.discovery.following import Updates
from tokenwire.coordinator.fleet.discovery.finder import WorkerFinder
from tokenwire.coordinator.fleet.discovery.source import Discovery, StaticList, Update


class Broken:
    """Fails after its first update."""

    async def run(self, update: Update) -> None:
        """Update, then raise."""
        update(["broken:1"])
        raise ValueError("unexpected")


async def test_addresses_of_all_sources_are_merged(caplog: pytest.LogCaptureFixture) -> None:
    """Each address once, in the order of the sources; a source that fails affects no other."""
    updates = Updates()
    named: dict[str, Discovery] = {
        "a": StaticList("one:1", "two:2"),
        "b": Broken(),
        "c": StaticList("two:2", "three:3"),
        "d": StaticList(),
    }
    finder = WorkerFinder(named, updates.update)
    finder.start()
    await updates.become("one:1", "two:2", "broken:1", "three:3")
    await finder.stop()

    assert "discovery of workers in b failed" in caplog.text
    assert "d has no workers" in caplog.text
