"""A dictionary that forgets what is not in use: for keys that clients choose, of which there may be any number."""

from collections.abc import Callable
from typing import TypeVar

KeyT = TypeVar("KeyT")
ValueT = TypeVar("ValueT")


class PrunedDict(dict[KeyT, ValueT]):
    """Drops values without use before it grows, each time that it has doubled: a new key then costs the same."""

    def __init__(self, is_used: Callable[[ValueT], object], kept: int) -> None:
        """`kept`: how many without use there may be, besides as many as are in use."""
        super().__init__()
        self._is_used = is_used
        self._kept = self._most = kept

    def __setitem__(self, key: KeyT, value: ValueT) -> None:
        """Set a value, after dropping others if there are too many."""
        if len(self) >= self._most:
            for unused in [each for each, known in self.items() if not self._is_used(known)]:
                del self[unused]
            self._most = 2 * len(self) + self._kept
        super().__setitem__(key, value)
