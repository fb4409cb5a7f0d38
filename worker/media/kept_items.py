"""What is made of media, by key, within a bound on memory."""

from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

KeptKeyT = TypeVar("KeptKeyT", bound=Hashable)
KeptItemT = TypeVar("KeptItemT")


class KeptItems(Generic[KeptKeyT, KeptItemT]):
    """Items; over the bound those used least recently are dropped, and one that is larger is not kept."""

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._items: OrderedDict[KeptKeyT, tuple[KeptItemT, int]] = OrderedDict()
        """With their sizes, least recently used first."""
        self.used_bytes = 0
        """Memory of the items."""

    def __contains__(self, key: KeptKeyT) -> bool:
        return key in self._items

    def get(self, key: KeptKeyT) -> KeptItemT | None:
        """Return an item; None if it is not here."""
        found = self._items.get(key)
        if found is None:
            return None
        self._items.move_to_end(key)
        return found[0]

    def keep(self, key: KeptKeyT, item: KeptItemT, size: int) -> None:
        """Keep an item of this size."""
        if key in self._items:
            self.used_bytes -= self._items.pop(key)[1]
        while self._items and self.used_bytes + size > self._most_bytes:
            self.used_bytes -= self._items.popitem(last=False)[1][1]
        if size <= self._most_bytes:
            self._items[key] = item, size
            self.used_bytes += size
