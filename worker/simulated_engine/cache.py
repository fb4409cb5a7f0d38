"""A simulated KV cache: full blocks are shared by hash and kept until space is needed, evicted oldest first."""

from collections import OrderedDict

from tokenwire.worker.cache.prefix_cache import CacheChange


class KvCache:
    """Counts blocks; holds no data.

    A block is *private* while it fills, *referenced* once full and in use, *idle* when only the prefix
    cache holds it. Idle blocks count as free space.
    """

    __slots__ = ("_idle", "_prefixes", "_private", "_references", "capacity", "change")

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self._private = 0
        self._references: dict[int, int] = {}
        self._idle: OrderedDict[int, None] = OrderedDict()
        self._prefixes: dict[int, int] = {}
        """Prefix hashes of the blocks that have one."""
        self.change = CacheChange()
        """Changes since they were last taken."""

    @property
    def used(self) -> int:
        """Blocks that running sequences hold."""
        return self._private + len(self._references)

    @property
    def usage(self) -> float:
        """Share of the blocks that running sequences hold."""
        return self.used / self.capacity

    def match(self, hashes: list[int]) -> int:
        """Return the number of leading blocks that are cached."""
        for count, block in enumerate(hashes):
            if block not in self._references and block not in self._idle:
                return count
        return len(hashes)

    def admit(self, cached: list[int], fresh: int) -> bool:
        """Reference cached blocks and allocate private ones; return False and take none if they do not fit."""
        revived = sum(block in self._idle for block in cached)
        if self.used + revived + fresh > self.capacity:
            return False
        for block in cached:
            self._add_reference(block)
        self._private += fresh
        self._evict()
        return True

    def allocate(self) -> bool:
        """Allocate one private block; return whether there was one."""
        used = self._private + len(self._references)
        if used >= self.capacity:
            return False
        self._private += 1
        if used + len(self._idle) >= self.capacity:
            self._evict_oldest()
        return True

    def seal(self, block: int, prefix: int | None = None) -> None:
        """Turn a full private block into a shared one; a second copy of the same block frees its space."""
        self._private -= 1
        self._add_reference(block)
        if prefix is not None and block not in self._prefixes:
            self._prefixes[block] = prefix
            self.change.store(prefix)

    def release(self, blocks: list[int], private: int) -> None:
        """Free blocks. Later ones will be evicted first: they are useless without the earlier ones."""
        self._private -= private
        for block in reversed(blocks):
            count = self._references[block]
            if count > 1:
                self._references[block] = count - 1
            else:
                del self._references[block]
                self._idle[block] = None

    def clear(self) -> bool:
        """Evict all idle blocks; return whether the cache is empty now."""
        if self.used:
            return False
        self._idle.clear()
        self._prefixes.clear()
        self.change.clear()
        return True

    def _add_reference(self, block: int) -> None:
        self._references[block] = self._references.get(block, 0) + 1
        self._idle.pop(block, None)

    def _evict(self) -> None:
        for _ in range(self.used + len(self._idle) - self.capacity):
            self._evict_oldest()

    def _evict_oldest(self) -> None:
        block, _ = self._idle.popitem(last=False)
        prefix = self._prefixes.pop(block, None)
        if prefix is not None:
            self.change.remove(prefix)
