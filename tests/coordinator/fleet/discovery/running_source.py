"""Runs a discovery source and records its updates."""

import asyncio
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager

from tests.workers import until
from tokenwire.coordinator.fleet.discovery.source import DiscoverySource


class Updates:
    """The updates of a source."""

    def __init__(self) -> None:
        self.lists: list[list[str]] = []

    def update(self, addresses: Collection[str]) -> None:
        """Record an update."""
        self.lists.append(list(addresses))

    async def become(self, *addresses: str) -> None:
        """Wait until these are the last addresses."""
        await until(lambda: bool(self.lists) and self.lists[-1] == list(addresses))


@asynccontextmanager
async def run_source(source: DiscoverySource) -> AsyncIterator[Updates]:
    """Run a source; yield its updates."""
    updates = Updates()
    running = asyncio.create_task(source.run(updates.update))
    try:
        yield updates
    finally:
        running.cancel()
        await asyncio.wait([running])
