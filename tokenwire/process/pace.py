"""A few of what wants to begin do so in each turn of the event loop, the others in the next ones."""

import asyncio
from collections import OrderedDict, deque


class Pace:
    """Keeps a burst from having the event loop for itself: what goes on already has its turns in between."""

    def __init__(self, most: int) -> None:
        """`most` begin in each turn."""
        self._most = self._room = most
        self._waiting: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()
        """By tenant, the next one first."""

    def begin(self, tenant: str) -> "asyncio.Future[None] | None":
        """Return None for what may begin now, else what to wait for; tenants that wait take turns."""
        if self._room:
            self._room -= 1
            return None
        loop = asyncio.get_running_loop()
        if not self._waiting:  # only now: a request that comes alone takes nothing of the loop
            loop.call_soon(self._next_turn)
        turn: asyncio.Future[None] = loop.create_future()
        self._waiting.setdefault(tenant, deque()).append(turn)
        return turn

    def _next_turn(self) -> None:
        room = self._most
        while self._waiting and room:
            tenant, turns = next(iter(self._waiting.items()))
            turn = turns.popleft()
            if turns:
                self._waiting.move_to_end(tenant)
            else:
                del self._waiting[tenant]
            if not turn.done():  # by a cancellation
                turn.set_result(None)
                room -= 1
        if self._waiting:
            asyncio.get_running_loop().call_soon(self._next_turn)
        else:
            self._room = room
