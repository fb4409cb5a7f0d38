"""Bounds on what a body is made of: parsing a million little things would stop every stream, and nobody needs them."""

import asyncio
from dataclasses import dataclass

from tokenwire.errors import InvalidRequest


@dataclass(frozen=True, slots=True)
class ShapeLimits:
    """How many things may be in a body. What stands in strings does not count, however long they are."""

    parts: int = 512 * 1024
    """Strings, objects and lists. A field counts twice, beside its value: for its name, and as an entry."""
    values: int = 4 * 1024 * 1024
    """Of all kinds: mostly the ids of prompts."""
    unchecked_bytes: int = 1024 * 1024
    """A body of this size holds too few of anything to be worth a look."""
    piece_bytes: int = 1024 * 1024
    """Others have a turn after so many."""


async def check_shape(body: bytes, limits: ShapeLimits | None = None) -> None:
    """Check a body before it is parsed, which is one call that nothing interrupts. Raises InvalidRequest."""
    limits = limits or ShapeLimits()
    if len(body) <= limits.unchecked_bytes:
        return
    if b"\0" in body:  # in no JSON but that of UTF-16 and UTF-32, where signs would be looked for in vain
        raise InvalidRequest(f"A body of more than {limits.unchecked_bytes} bytes has to be UTF-8.")
    quotes = signs = commas = start = 0
    while start < len(body):
        end = _whole_escapes(body, start, start + limits.piece_bytes)
        between = body[start:end].replace(b"\\\\", b"").replace(b'\\"', b"").split(b'"')
        outside = b"".join(between[quotes % 2 :: 2])  # an odd number of quotes lies before what begins in a string
        quotes += len(between) - 1
        signs += sum(map(outside.count, (b"{", b"[", b":")))
        commas += outside.count(b",")
        start = end
        if quotes // 2 + signs > limits.parts:
            raise InvalidRequest(f"The body has more than {limits.parts} strings, objects, lists and fields.")
        if commas >= limits.values:
            raise InvalidRequest(f"The body has more than {limits.values} values.")
        await asyncio.sleep(0)


def _whole_escapes(body: bytes, start: int, end: int) -> int:
    """Return where a piece ends that is to end about there, and not in the middle of an escape."""
    piece = body[start:end]
    return end + (len(piece) - len(piece.rstrip(b"\\"))) % 2
