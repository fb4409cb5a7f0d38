"""The messages of a turn's prompt, of which it keeps those alone that it adds to another's: sessions share them."""

from collections.abc import Iterator, Mapping, Sequence
from hashlib import blake2b
from typing import Any

from tokenwire.coordinator.trajectories.index import message_digest

_DIGEST_BYTES = 16


class TurnMessages:
    """The first messages of another turn, and its own."""

    __slots__ = ("_base", "_digests", "_own", "_start")

    def __init__(self, own: Sequence[Mapping[str, Any]], base: "TurnMessages | None" = None, start: int = 0) -> None:
        """`start`: how many messages it has of `base`; fewer, if that has fewer."""
        self._own = own
        self._base = base
        self._start = 0 if base is None else min(start, len(base))
        self._digests = [*_chained(b"" if base is None else base._digest_of(self._start), own)]
        """Of the messages up to each of its own."""

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

    @property
    def digest(self) -> bytes:
        """Of all messages."""
        return self._digest_of(len(self))

    def beginnings(self) -> Iterator[tuple[bytes, Mapping[str, Any]]]:
        """Yield the digests of their first messages, of most first, each with the message that comes after them."""
        following: Mapping[str, Any] | None = None
        each: TurnMessages | None = self
        end = len(self)
        while each is not None and end:
            for place in range(end - each._start - 1, -1, -1):
                if following is not None:
                    yield each._digests[place], following
                following = each._own[place]
            end = min(end, each._start)
            each = each._base

    def _digest_of(self, count: int) -> bytes:
        each = self
        while count <= each._start and each._base is not None:
            each = each._base
        return each._digests[count - each._start - 1] if count else b""

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


def _chained(digest: bytes, messages: Sequence[Mapping[str, Any]]) -> Iterator[bytes]:
    for message in messages:
        digest = blake2b(digest + message_digest(message), digest_size=_DIGEST_BYTES).digest()
        yield digest
