"""Turns at something slow, fair among tenants: one that waits for many delays another by one of them."""

import asyncio
from collections import OrderedDict, deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tokenwire.errors import Overloaded

_RETRY_AFTER_S = 5.0


class FairTurns:
    """A number of places, of which a tenant has at most `share` at a time; tenants that wait take turns."""

    def __init__(self, places: int, share: int, most_waiting: float = float("inf"), refusal: str = "") -> None:
        """`most_waiting` is of each tenant, `refusal` what those beyond are told."""
        self._free = places
        self._share = share
        self._most_waiting = most_waiting
        self._refusal = refusal
        self._taken: dict[str, int] = {}
        """Places by tenant, without zeros."""
        self._waiting: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()
        """By tenant, the next one first."""

    @asynccontextmanager
    async def turn(self, tenant: str) -> AsyncIterator[None]:
        """Wait for a place, and have it meanwhile. Raises Overloaded if too many of the tenant wait."""
        await self.begin(tenant)
        try:
            yield
        finally:
            self.end(tenant)

    async def begin(self, tenant: str) -> None:
        """Wait for a place, and take it until `end`. Raises Overloaded if too many of the tenant wait."""
        if self._waiting or not self._may_take(tenant):
            await self._wait(tenant)
        else:
            self._take(tenant)

    async def _wait(self, tenant: str) -> None:
        turns = self._waiting.setdefault(tenant, deque())
        if len(turns) >= self._most_waiting:
            raise Overloaded(self._refusal, retry_after_s=_RETRY_AFTER_S)
        turn = asyncio.get_running_loop().create_future()
        turns.append(turn)
        self._give_places()
        try:
            await turn
        except asyncio.CancelledError:
            if turn.cancelled():
                if turn in turns:
                    turns.remove(turn)
                self._give_places()  # the next one may be of another tenant
            else:
                self.end(tenant)
            raise

    def _may_take(self, tenant: str) -> bool:
        return self._free > 0 and self._taken.get(tenant, 0) < self._share

    def _take(self, tenant: str) -> None:
        self._free -= 1
        self._taken[tenant] = self._taken.get(tenant, 0) + 1

    def end(self, tenant: str) -> None:
        """Give a place back."""
        self._free += 1
        self._taken[tenant] -= 1
        if not self._taken[tenant]:
            del self._taken[tenant]
        if tenant in self._waiting:
            self._waiting.move_to_end(tenant)  # it has just had a turn, for which it may not have waited
        self._give_places()

    def _give_places(self) -> None:
        for tenant, turns in list(self._waiting.items()):
            while turns and turns[0].cancelled():
                turns.popleft()
            if turns and self._may_take(tenant):
                self._take(tenant)
                turns.popleft().set_result(None)
                self._waiting.move_to_end(tenant)
            if not turns:
                del self._waiting[tenant]
