"""Limits the number of elements of a body: parsing millions of them would block every stream."""

import asyncio
from dataclasses import dataclass

from tokenwire.errors import InvalidRequest

_PART_BYTES = 64
_VALUE_BYTES = 40


@dataclass(frozen=True, slots=True)
class ShapeLimits:
    """Limits on a body. The contents of strings do not count, however long they are."""

    parts: int = 512 * 1024
    """Strings, objects and lists. A field counts twice in addition to its value: for its name, and as an entry."""
    values: int = 3 * 1024 * 1024
    """Values of all kinds: mostly the ids of prompts."""
    unchecked_bytes: int = 128 * 1024
    """Bodies up to this size are not checked: they have too few elements."""
    piece_bytes: int = 1024 * 1024
    """Bytes checked before the event loop continues with other work."""


async def check_shape(body: bytes | bytearray, limits: ShapeLimits | None = None) -> int:
    """Check a body before it is parsed, in one call that cannot be interrupted. Raises InvalidRequest.

    Returns about how many bytes the result will take.
    """
    limits = limits or ShapeLimits()
    if len(body) <= limits.unchecked_bytes:
        return len(body)
    if b"\0" in body:  # only in UTF-16 and UTF-32, where the counts below would be wrong
        raise InvalidRequest(f"A body of {len(body)} bytes, more than {limits.unchecked_bytes}, must be UTF-8.")
    quotes = openings = commas = start = 0
    while start < len(body):
        end = _include_escapes(body, start, start + limits.piece_bytes)
        between = body[start:end].replace(b"\\\\", b"").replace(b'\\"', b"").split(b'"')
        outside = b"".join(between[quotes % 2 :: 2])  # after an odd number of quotes the piece starts in a string
        quotes += len(between) - 1
        openings += sum(map(outside.count, (b"{", b"[", b":")))
        commas += outside.count(b",")
        start = end
        parts = quotes // 2 + openings
        if parts > limits.parts:
            raise _rejection(parts, "strings, objects, lists and fields", limits.parts, start < len(body))
        if commas >= limits.values:
            raise _rejection(commas + 1, "values", limits.values, start < len(body))
        await asyncio.sleep(0)
    return len(body) + _PART_BYTES * (quotes // 2 + openings) + _VALUE_BYTES * commas


def _rejection(count: int, what: str, limit: int, has_more: bool) -> InvalidRequest:
    return InvalidRequest(f"The body has {'at least ' * has_more}{count} {what}, more than {limit}.")


def _include_escapes(body: bytes | bytearray, start: int, end: int) -> int:
    """Return the end of a piece, adjusted so that it does not split an escape."""
    piece = body[start:end]
    return end + (len(piece) - len(piece.rstrip(b"\\"))) % 2
