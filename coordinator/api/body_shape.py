"""Limits the number of elements of JSON: parsing millions of them would block every stream."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial

from tokenwire.errors import InvalidRequest

_PART_BYTES = 64
_VALUE_BYTES = 40


@dataclass(frozen=True, slots=True)
class ShapeLimits:
    """Limits on JSON. The contents of strings do not count, however long they are."""

    parts: int = 512 * 1024
    """Strings, objects and lists. A field counts twice in addition to its value: for its name, and as an entry."""
    values: int = 3 * 1024 * 1024
    """Values of all kinds: mostly the ids of prompts."""
    unchecked_bytes: int = 128 * 1024
    """Texts up to this size are not checked: they have too few elements."""
    piece_bytes: int = 1024 * 1024
    """Bytes checked before the event loop continues with other work."""


GiveWay = Callable[[], Awaitable[None]]
"""Lets others go on before the next piece."""
_GIVE_WAY: GiveWay = partial(asyncio.sleep, 0)


async def check_shape(
    *texts: bytes | bytearray, limits: ShapeLimits | None = None, give_way: GiveWay = _GIVE_WAY
) -> int:
    """Check a body, or texts that count as one, before they are parsed by calls that cannot be interrupted.

    Returns about how many bytes the result will take. Raises InvalidRequest.
    """
    limits = limits or ShapeLimits()
    size = sum(map(len, texts))
    if size <= limits.unchecked_bytes:
        return size
    count = ElementCount(limits, give_way)
    for text in texts:
        if b"\0" in text:  # only in UTF-16 and UTF-32, where the counts below would be wrong
            raise InvalidRequest(f"A body of {size} bytes, more than {limits.unchecked_bytes}, must be UTF-8.")
        await count.add(text, "The body has")
    await asyncio.sleep(0)
    return size + _PART_BYTES * count.parts + _VALUE_BYTES * count.commas


class ElementCount:
    """Counts the elements of several texts together."""

    def __init__(self, limits: ShapeLimits, give_way: GiveWay = _GIVE_WAY) -> None:
        self.parts = self.commas = 0
        self._limits = limits
        self._give_way = give_way
        self._bytes = limits.piece_bytes
        """Since others had a turn: at first it is not known how many begin at once."""

    async def add(self, text: bytes | bytearray, what_has: str, param: str | None = None) -> None:
        """Add those of a text, with turns for others. Raises InvalidRequest, which begins with `what_has`."""
        limits, before = self._limits, self.parts
        quotes = openings = start = 0
        while start < len(text):
            if self._bytes >= limits.piece_bytes:
                self._bytes = 0
                await self._give_way()
            end = _include_escapes(text, start, start + limits.piece_bytes)
            between = text[start:end].replace(b"\\\\", b"").replace(b'\\"', b"").split(b'"')
            outside = b"".join(between[quotes % 2 :: 2])  # after an odd number of quotes the piece starts in a string
            quotes += len(between) - 1
            openings += sum(map(outside.count, (b"{", b"[", b":")))
            self.commas += outside.count(b",")
            self._bytes += end - start
            start = end
            self.parts = before + quotes // 2 + openings
            at_least = what_has + " at least" * (start < len(text))
            if self.parts > limits.parts:
                raise _rejection(at_least, self.parts, "strings, objects, lists and fields", limits.parts, param)
            if self.commas >= limits.values:
                raise _rejection(at_least, self.commas + 1, "values", limits.values, param)


def _rejection(at_least: str, count: int, what: str, limit: int, param: str | None) -> InvalidRequest:
    return InvalidRequest(f"{at_least} {count} {what}, more than {limit}.", param=param)


def _include_escapes(text: bytes | bytearray, start: int, end: int) -> int:
    """Return the end of a piece, adjusted so that it does not split an escape."""
    piece = text[start:end]
    return end + (len(piece) - len(piece.rstrip(b"\\"))) % 2
