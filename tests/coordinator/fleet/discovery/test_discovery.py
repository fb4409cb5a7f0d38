"""All sources of workers together."""

import pytest

from tests.coordinator.fleet.discovery.running_source import Updates
from tokenwire.coordinator.fleet.discovery.discovery import Discovery
from tokenwire.coordinator.fleet.discovery.source import DiscoverySource, StaticSource, Update


class BrokenSource:
    """Fails after its first update."""

    async def run(self, update: Update) -> None:
        """Update, then raise."""
        update(["broken:1"])
        raise ValueError("unexpected")


async def test_addresses_of_all_sources_are_merged(caplog: pytest.LogCaptureFixture) -> None:
    """Each address once, in the order of the sources; a source that fails affects no other."""
    updates = Updates()
    named: dict[str, DiscoverySource] = {
        "a": StaticSource("one:1", "two:2"),
        "b": BrokenSource(),
        "c": StaticSource("two:2", "three:3"),
        "d": StaticSource(),
    }
    discovery = Discovery(named, updates.update)
    discovery.start()
    await updates.become("one:1", "two:2", "broken:1", "three:3")
    await discovery.stop()

    assert "discovery of workers in b failed" in caplog.text
    assert "d has no workers" in caplog.text
