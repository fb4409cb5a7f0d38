"""A KV cache of counted blocks: full ones are shared by hash and kept until space is needed, oldest first."""

from collections import OrderedDict

from tokenwire.worker.prefix_cache import CacheChange


class KvCache:
    """Counts blocks; holds no data.

    A block is *private* while it fills, *referenced* once full and in use, *idle* when only the prefix
    cache remembers it. Idle blocks are free space with a memory.
    """

    __slots__ = ("_idle", "_names", "_private", "_references", "capacity", "change")

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self._private = 0
        self._references: dict[int, int] = {}
        self._idle: OrderedDict[int, None] = OrderedDict()
        self._names: dict[int, int] = {}
        """Of blocks that end a prefix with a name."""
        self.change = CacheChange()
        """Named prefixes that came and went since somebody took it."""

    @property
    def used(self) -> int:
        """Blocks that running sequences hold."""
        return self._private + len(self._references)

    @property
    def usage(self) -> float:
        """Share of the blocks that running sequences hold."""
        return self.used / self.capacity

    def match(self, hashes: list[int]) -> int:
        """Tell how many of the leading blocks are in the cache."""
        for count, block in enumerate(hashes):
            if block not in self._references and block not in self._idle:
                return count
        return len(hashes)

    def admit(self, cached: list[int], fresh: int) -> bool:
        """Take cached blocks and some private ones, all or nothing."""
        revived = sum(block in self._idle for block in cached)
        if self.used + revived + fresh > self.capacity:
            return False
        for block in cached:
            self._refer(block)
        self._private += fresh
        self._evict()
        return True

    def take(self) -> bool:
        """Take one private block."""
        used = self._private + len(self._references)
        if used >= self.capacity:
            return False
        self._private += 1
        if used + len(self._idle) >= self.capacity:
            self._forget_oldest()
        return True

    def seal(self, block: int, name: int | None = None) -> None:
        """Turn a private block that is full into a shared one; a second copy of the same frees its space."""
        self._private -= 1
        self._refer(block)
        if name is not None and block not in self._names:
            self._names[block] = name
            self.change.store(name)

    def release(self, blocks: list[int], private: int) -> None:
        """Give blocks back. Later blocks are forgotten first: they are of no use without the earlier ones."""
        self._private -= private
        for block in reversed(blocks):
            count = self._references[block]
            if count > 1:
                self._references[block] = count - 1
            else:
                del self._references[block]
                self._idle[block] = None

    def clear(self) -> bool:
        """Forget idle blocks; returns whether the cache is empty now."""
        if self.used:
            return False
        self._idle.clear()
        self._names.clear()
        self.change.clear()
        return True

    def _refer(self, block: int) -> None:
        self._references[block] = self._references.get(block, 0) + 1
        self._idle.pop(block, None)

    def _evict(self) -> None:
        for _ in range(self.used + len(self._idle) - self.capacity):
            self._forget_oldest()

    def _forget_oldest(self) -> None:
        block, _ = self._idle.popitem(last=False)
        name = self._names.pop(block, None)
        if name is not None:
            self.change.remove(name)
