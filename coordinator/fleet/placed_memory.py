"""The memory of all requests that were placed on workers, until their replies are sent; clients share it."""

from collections.abc import Callable

from tokenwire.errors import InvalidRequest, Unavailable, mib
from tokenwire.process.fair_room import TIMES_FREE, leaves_room

_LARGE_BYTES = 2**20
"""Larger requests take half of the memory at most, so that others need not wait for them."""
_TIMES_FREE_TO_GROW = 1
"""In place of TIMES_FREE, for claims that grow to be added: what they grow by afterwards would be refused."""
_RETRY_AFTER_S = 1.0


class MemoryClaim:
    """What one request takes, with all of its prompts and choices, from its first part on a worker until it ends."""

    __slots__ = ("holder", "is_large", "on_refused", "size_bytes", "tenant", "weight")

    def __init__(self, size_bytes: int, tenant: str = "", weight: int = 1) -> None:
        """`tenant`: whose share it counts for; empty: nobody's."""
        self.size_bytes = size_bytes
        self.tenant = tenant
        self.weight = weight
        self.is_large = size_bytes > _LARGE_BYTES
        self.on_refused: Callable[[Unavailable], None] | None = None
        """Called when it is taken away: only claims that grow ever lack something. None: it does not grow."""
        self.holder: PlacedMemory | None = None
        """The memory of which it was taken; None: it was not, or is given back."""

    def grow(self, more: int) -> None:
        """Take so many bytes more; without room for them, it or another one is refused."""
        if self.holder is not None:
            self.holder.grow(self, more)

    def release(self) -> None:
        """Give it back, at the end of its request. Safe at any time, more than once."""
        memory, self.holder, self.on_refused = self.holder, None, None
        if memory is not None:
            memory.add(self, -self.size_bytes)
            if self in memory.growing:
                del memory.growing[self]
            if memory.has_refused:
                memory.has_refused = False
                memory.on_freed()


class PlacedMemory:
    """Says which requests may be placed: as a whole, so that no two wait for memory that the other has.

    Large ones have half of it, of which they leave others what they do not use; while one of them waits, others leave
    that half to it. Of either kind a client leaves room for those of others. A claim stays of its kind when it grows.
    """

    def __init__(self, limit_bytes: int, on_freed: Callable[[], None]) -> None:
        self.limit_bytes = limit_bytes
        self.most_bytes = limit_bytes // 2
        """What one request may take."""
        self.on_freed = on_freed
        """Called when there is more, after a request was not allowed."""
        self.has_refused = False
        self.held_bytes = self.large_bytes = 0
        """What all requests take, and large ones of it."""
        self._of_share: dict[tuple[str, bool], int] = {}
        """What each client's small requests take, and its large ones; without nothing."""
        self.growing: dict[MemoryClaim, None] = {}
        """In the order in which they were placed."""
        self._large_waiting = 0

    def check(self, claim: MemoryClaim | None) -> None:
        """Check that a request may ever be placed. Raises InvalidRequest."""
        if claim is not None and claim.size_bytes > self.most_bytes:
            raise InvalidRequest(
                f"The request takes about {mib(claim.size_bytes)} while it runs, more than half of "
                f"{mib(self.limit_bytes)} (--max-running-mb)."
            )

    def allows(self, claim: MemoryClaim | None) -> bool:
        """Return whether a request may be placed; one of which a part was may always be."""
        if claim is None or claim.holder is not None:
            return True
        room = self._room(claim)
        allowed = claim.size_bytes <= room and self._leaves_room(claim, claim.size_bytes, room)
        self.has_refused |= not allowed
        return allowed

    def is_within_share(self, claim: MemoryClaim | None) -> bool:
        """Return whether a request leaves others room; who has nothing yet need not."""
        if claim is None or claim.holder is not None:
            return True
        return self._leaves_room(claim, claim.size_bytes, self._room(claim))

    def _leaves_room(self, claim: MemoryClaim, more: int, room: int) -> bool:
        own = self._of_share.get((claim.tenant, claim.is_large))
        begins_to_grow = claim.holder is None and claim.on_refused is not None
        if own is None or not (claim.tenant or begins_to_grow):
            return True
        times_free = _TIMES_FREE_TO_GROW if begins_to_grow else TIMES_FREE
        return leaves_room(own, more, room, times_free * claim.weight)

    def _room(self, claim: MemoryClaim) -> int:
        """Return what requests of its kind may take besides what is held."""
        free = self.limit_bytes - self.held_bytes
        if claim.is_large:
            return min(free, self.most_bytes - self.large_bytes)
        if self._large_waiting and claim.holder is None:
            return self.limit_bytes - self.most_bytes - (self.held_bytes - self.large_bytes)
        return free

    def take(self, claim: MemoryClaim) -> None:
        """Count a request of which a part was placed. Safe more than once."""
        if claim.holder is None:
            claim.holder = self
            self.add(claim, claim.size_bytes)
            if claim.on_refused is not None:
                self.growing[claim] = None

    def grow(self, claim: MemoryClaim, more: int) -> None:
        """Take more for a claim: without room, the newest one that grows of the client with most is refused for it."""
        while claim.holder is self:
            room = self._room(claim)
            if more <= room and self._leaves_room(claim, more, room):
                claim.size_bytes += more
                self.add(claim, more)
                return
            alike = [each for each in reversed(self.growing) if each.is_large == claim.is_large] or [claim]
            self._refuse(max(alike, key=lambda each: self._of_share[each.tenant, each.is_large] / each.weight))

    def add(self, claim: MemoryClaim, size_bytes: int) -> None:
        """Count more of a claim, or less."""
        share = claim.tenant, claim.is_large
        self.held_bytes += size_bytes
        self.large_bytes += size_bytes * claim.is_large
        self._of_share[share] = left = self._of_share.get(share, 0) + size_bytes
        if not left:
            del self._of_share[share]

    def _refuse(self, claim: MemoryClaim) -> None:
        on_refused, size = claim.on_refused, mib(claim.size_bytes)
        claim.release()
        if on_refused is not None:
            message = (
                f"The reply takes {size} so far, and with others there is no room for more of it in "
                f"{self.bound_of(claim)}. Try again, stream it, or set max_tokens."
            )
            on_refused(Unavailable(message, retry_after_s=_RETRY_AFTER_S))

    def take_now(self, size_bytes: int, tenant: str = "", weight: int = 1) -> MemoryClaim:
        """Return the claim of a reply that is there already, or about to be made. Raises Unavailable without room for
        it; one that would never have any counts as half of the memory.
        """
        claim = MemoryClaim(min(size_bytes, self.most_bytes), tenant, weight)
        if not self.allows(claim):
            message = f"There is no room for a reply of {mib(size_bytes)} in {self.bound_of(claim)} now. Try again."
            raise Unavailable(message, retry_after_s=_RETRY_AFTER_S)
        self.take(claim)
        return claim

    def bound_of(self, claim: MemoryClaim) -> str:
        """Return what a request and others like it may take together, for a message."""
        return f"{'half of ' * claim.is_large}{mib(self.limit_bytes)} (--max-running-mb)"

    def wait(self, requests: int) -> None:
        """Count a large request that begins to wait, or ends (-1)."""
        self._large_waiting += requests
