"""The messages of a turn's prompt, of which it keeps those alone that it adds to another's: sessions share them."""

from collections.abc import Mapping, Sequence
from typing import Any


class TurnMessages:
    """The first messages of another turn, and its own."""

    __slots__ = ("_base", "_own", "_start")

    def __init__(self, own: Sequence[Mapping[str, Any]], base: "TurnMessages | None" = None, start: int = 0) -> None:
        """`start`: how many messages it has of `base`; fewer, if that has fewer."""
        self._own = own
        self._base = base
        self._start = 0 if base is None else min(start, len(base))

    def __len__(self) -> int:
        return self._start + len(self._own)

    def after(self, start: int) -> list[Mapping[str, Any]]:
        """Return the messages without the first ones."""
        pieces: list[Sequence[Mapping[str, Any]]] = []
        each: TurnMessages | None = self
        end = len(self)
        while each is not None and end > start:
            if end > each._start:
                pieces.append(each._own[max(0, start - each._start) : end - each._start])
                end = each._start
            each = each._base
        return [message for piece in reversed(pieces) for message in piece]

    def in_common(self, other: "TurnMessages") -> int:
        """Return how many messages both begin with."""
        known = self._known_in_common(other)
        for left, right in zip(self.after(known), other.after(known), strict=False):
            if left is not right and left != right:
                break
            known += 1
        return known

    def _known_in_common(self, other: "TurnMessages") -> int:
        if self is other:
            return len(self)
        return self._start if self._base is other else other._start if other._base is self else 0
