"""Counts the work of tenants together with other processes: several times a second while anybody waits.

This is distributed fair queueing: what a tenant is given elsewhere moves its tag here (Wang and Merchant,
FAST 2007). No request and no token waits for it. Each also tells how much waits with which priority, so that places are
left for what is more urgent elsewhere.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import NamedTuple

from tokenwire.coordinator.fleet.admission.share_store import SharedTags, ShareReport, ShareStore, TenantReport
from tokenwire.coordinator.fleet.admission.shares import Shares, shared_name

log = logging.getLogger(__name__)

_PERIOD_S = 0.1
"""Between two exchanges while anybody waits."""
_ASKS_EVERY = 10
"""Of these, one asks whether anybody waits elsewhere for what runs here."""
_MOST = 64
"""Models and priorities of one exchange, the most urgent ones: clients choose priorities."""


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
        models = [*dict.fromkeys(each.model for each in classes)]
        reports += [_priorities_of(model, classes) for model in models]
        told = await self.store.exchange(reports) or [None] * len(reports)
        priorities = dict(zip(models, told[len(classes) :], strict=True))
        for each, tags in zip(classes, told[: len(classes)], strict=True):
            _adopt(each.shares, tags, _more_urgent(each.priority, priorities[each.model]))

    def _to_exchange(self, asks: bool) -> Sequence[SharedClass]:
        waiting, others = list[SharedClass](), list[SharedClass]()
        for each in self._classes():
            if each.shares.waiting or each.shares.period:
                waiting.append(each)
            elif asks and each.shares:
                others.append(each)
        waiting.sort(key=lambda each: each.priority)
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


def _adopt(shares: Shares, tags: SharedTags | None, urgent: int) -> None:
    if tags is not None:
        shares.adopt(tags, urgent)
    if tags is None or not shares:
        shares.leave(urgent)  # what it has given is reported


def _priorities_of(model: str, classes: Iterable[SharedClass]) -> ShareReport:
    """Return what waits here of a model, with the priorities in place of tenants: they are given nothing."""
    waiting = {
        str(each.priority): TenantReport(0.0, 0.0, each.shares.sequences)
        for each in classes
        if each.model == model and each.shares.waiting
    }
    return ShareReport(shared_name(f"priorities {model}"), "", waiting)


def _more_urgent(priority: int, told: SharedTags | None) -> int:
    """Return how many sequences wait elsewhere with more urgent priorities."""
    return 0 if told is None else sum(count for other, count in told.waiting.items() if int(other) < priority)


def _name_of(each: SharedClass) -> str:
    return shared_name(f"{each.priority} {each.model}")
