"""Turns at something slow, fair among tenants: one that waits for many delays another by one of them."""

import asyncio
from collections import Counter, OrderedDict, deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tokenwire.errors import Overloaded

_RETRY_AFTER_S = 5.0


class FairTurns:
    """A number of places, of which a tenant has at most `share` at a time; tenants that wait take turns."""

    def __init__(self, places: int, share: int, most_waiting: float = float("inf")) -> None:
        """`most_waiting` is of each tenant."""
        self._free = places
        self._share = share
        self._most_waiting = most_waiting
        self._taken: Counter[str] = Counter()
        """Places by tenant, without zeros."""
        self._waiting: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()
        """By tenant, the next one first."""

    @asynccontextmanager
    async def turn(self, tenant: str) -> AsyncIterator[None]:
        """Wait for a place, and have it meanwhile. Raises Overloaded if too many of the tenant wait."""
        turns = self._waiting.setdefault(tenant, deque())
        if len(turns) >= self._most_waiting:
            raise Overloaded("Too many grammars of this client wait to be compiled.", retry_after_s=_RETRY_AFTER_S)
        turn = asyncio.get_running_loop().create_future()
        turns.append(turn)
        self._give_places()
        try:
            await turn
            yield
        finally:
            if not turn.cancelled():
                self._free += 1
                self._taken[tenant] -= 1
                self._taken = +self._taken
            self._give_places()

    def _give_places(self) -> None:
        for tenant, turns in list(self._waiting.items()):
            while turns and turns[0].cancelled():
                turns.popleft()
            if turns and self._free and self._taken[tenant] < self._share:
                self._free -= 1
                self._taken[tenant] += 1
                turns.popleft().set_result(None)
                self._waiting.move_to_end(tenant)
            if not turns:
                del self._waiting[tenant]
