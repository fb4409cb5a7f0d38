"""Runs all discovery sources and merges their addresses."""

import asyncio
import logging
from collections.abc import Collection, Mapping

from tokenwire.coordinator.fleet.discovery.source import DiscoverySource, Update

log = logging.getLogger(__name__)

_RETRY_S = 5.0


class Discovery:
    """Runs sources, each by the name it was configured with."""

    def __init__(self, sources: Mapping[str, DiscoverySource], update: Update) -> None:
        """`update` is called with all addresses whenever they may have changed."""
        self._sources = sources
        self._update = update
        self._found: dict[str, Collection[str]] = {}
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Start all sources."""
        self._tasks = [asyncio.create_task(self._follow(name)) for name in self._sources]

    async def stop(self) -> None:
        """Stop all sources; their workers stay."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _follow(self, name: str) -> None:
        while True:
            try:
                await self._sources[name].run(lambda addresses: self._take(name, addresses))
                return
            except Exception:
                # A failing source must not affect the others, nor the workers that it found.
                log.exception("discovery of workers in %s failed", name)
                await asyncio.sleep(_RETRY_S)

    def _take(self, name: str, addresses: Collection[str]) -> None:
        if not addresses:
            log.warning("%s has no workers", name)
        self._found[name] = addresses
        known = [address for each in self._sources for address in self._found.get(each, ())]
        self._update(list(dict.fromkeys(known)))
