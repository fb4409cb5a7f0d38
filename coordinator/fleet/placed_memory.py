"""The memory of all requests that were placed on workers, until their replies are sent."""

from collections.abc import Callable

from tokenwire.errors import InvalidRequest, Unavailable, mib

_LARGE_BYTES = 2**20
"""Larger requests take half of the memory at most, so that others need not wait for them."""
_RETRY_AFTER_S = 1.0


class MemoryClaim:
    """What one request takes, with all of its prompts and choices, from its first part on a worker until it ends."""

    __slots__ = ("holder", "is_large", "size_bytes")

    def __init__(self, size_bytes: int) -> None:
        self.size_bytes = size_bytes
        self.is_large = size_bytes > _LARGE_BYTES
        self.holder: PlacedMemory | None = None
        """The memory of which it was taken; None: it was not, or is given back."""

    def release(self) -> None:
        """Give it back, at the end of its request. Safe at any time, more than once."""
        memory, self.holder = self.holder, None
        if memory is not None:
            memory.held_bytes -= self.size_bytes
            memory.large_bytes -= self.size_bytes * self.is_large
            if memory.has_refused:
                memory.has_refused = False
                memory.on_freed()


class PlacedMemory:
    """Says which requests may be placed: as a whole, so that no two wait for memory that the other has.

    Large ones have half of it, of which they leave others what they do not use; while one of them waits, others leave
    that half to it.
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
        size, limit, others = claim.size_bytes, self.limit_bytes, self.held_bytes - self.large_bytes
        if claim.is_large:
            allowed = self.large_bytes + size <= self.most_bytes and self.held_bytes + size <= limit
        elif self._large_waiting:
            allowed = others + size <= limit - self.most_bytes
        else:
            allowed = self.held_bytes + size <= limit
        self.has_refused |= not allowed
        return allowed

    def take(self, claim: MemoryClaim) -> None:
        """Count a request of which a part was placed. Safe more than once."""
        if claim.holder is None:
            claim.holder = self
            self.held_bytes += claim.size_bytes
            self.large_bytes += claim.size_bytes * claim.is_large

    def take_now(self, size_bytes: int) -> MemoryClaim:
        """Return the claim of a reply that is there already, or about to be made. Raises Unavailable without room for
        it; one that would never have any counts as half of the memory.
        """
        claim = MemoryClaim(min(size_bytes, self.most_bytes))
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
