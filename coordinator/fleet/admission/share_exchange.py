"""Counts the work of tenants together with other processes: several times a second while anybody waits.

This is distributed start-time fair queueing: what a tenant is given elsewhere moves its tag here (Wang and Merchant,
FAST 2007). No request and no token waits for it.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from hashlib import blake2b
from typing import NamedTuple

from tokenwire.coordinator.fleet.admission.share_store import SharedTags, ShareStore
from tokenwire.coordinator.fleet.admission.shares import Shares

log = logging.getLogger(__name__)

_PERIOD_S = 0.1
"""Between two exchanges while anybody waits."""
_ASKS_EVERY = 10
"""Of these, one asks whether anybody waits elsewhere for what runs here."""
_MOST = 64
"""Models and priorities of one exchange: clients choose priorities."""
_NAME_BYTES = 16


class SharedClass(NamedTuple):
    """The shares of one model and priority in this process."""

    model: str
    priority: int
    shares: Shares


class ShareExchange:
    """Exchanges the shares of this process with those of others."""

    def __init__(self, store: ShareStore, classes: Callable[[], Iterable[SharedClass]]) -> None:
        """`classes` returns what there is to share."""
        self.store = store
        self._classes = classes
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Exchange until it is stopped."""
        self._task = asyncio.create_task(self._repeat())

    async def stop(self) -> None:
        """End, and disconnect."""
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
        await self.store.close()

    async def exchange(self, asks: bool = True) -> None:
        """Exchange once. `asks`: also for what runs here while nobody is known to wait."""
        classes = self._to_exchange(asks)
        if not classes:
            return
        if self.store.is_paused:
            for each in classes:
                each.shares.leave()
            return
        reports = [each.shares.report(_name_of(each)) for each in classes]
        told = await self.store.exchange(reports)
        for each, tags in zip(classes, [None] * len(classes) if told is None else told, strict=True):
            _adopt(each.shares, tags)

    def _to_exchange(self, asks: bool) -> Sequence[SharedClass]:
        waiting, others = list[SharedClass](), list[SharedClass]()
        for each in self._classes():
            if each.shares.waiting or each.shares.period:
                waiting.append(each)
            elif asks and each.shares:
                others.append(each)
        for left in waiting[_MOST:]:
            left.shares.leave()
        return (waiting + others)[:_MOST]

    async def _repeat(self) -> None:
        turn = 0
        while True:
            await asyncio.sleep(_PERIOD_S)
            turn += 1
            try:
                await self.exchange(asks=turn % _ASKS_EVERY == 0)
            except Exception:
                log.exception("the work of tenants was not exchanged")


def _adopt(shares: Shares, tags: SharedTags | None) -> None:
    if tags is None:
        shares.leave()
        return
    shares.adopt(tags)
    if not shares:
        shares.leave()  # what it has given is reported


def _name_of(each: SharedClass) -> str:
    return blake2b(f"{each.priority} {each.model}".encode(), digest_size=_NAME_BYTES).hexdigest()
