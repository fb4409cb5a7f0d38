"""Runs a source of workers and remembers what it tells."""

import asyncio
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager

from tests.workers import until
from tokenwire.coordinator.fleet.discovery.source import Discovery


class Told:
    """What a source told."""

    def __init__(self) -> None:
        self.lists: list[list[str]] = []

    def update(self, addresses: Collection[str]) -> None:
        """Remember."""
        self.lists.append(list(addresses))

    async def become(self, *addresses: str) -> None:
        """Wait until these are the addresses."""
        await until(lambda: bool(self.lists) and self.lists[-1] == list(addresses))


@asynccontextmanager
async def followed(source: Discovery) -> AsyncIterator[Told]:
    """Run a source."""
    told = Told()
    running = asyncio.create_task(source.run(told.update))
    try:
        yield told
    finally:
        running.cancel()
        await asyncio.wait([running])
