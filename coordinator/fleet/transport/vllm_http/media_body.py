"""Writes a request with media: JSON in which the bytes of each item are a data URL, a piece at a time."""

import asyncio
import binascii
import json
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass

_PIECE_BYTES = 3 * 64 * 1024
"""A multiple of three, so that pieces of base64 have no padding between them."""


@dataclass(frozen=True, slots=True)
class MediaPart:
    """An item as a part of a request."""

    name: str
    """By which the server keeps it."""
    data: bytes | None
    """None: the server has it."""


async def body_with_media(head: Iterable[bytes], parts: Sequence[MediaPart]) -> AsyncIterator[bytes]:
    """Yield a request with its `content_parts`, with turns for others between pieces; `head` lacks the last brace."""
    for piece in head:
        yield piece
    yield b', "content_parts": ['
    for number, part in enumerate(parts):
        opening = f'{", " if number else ""}{{"type": "image_url", "uuid": {json.dumps(part.name)}, "url": '.encode()
        if part.data is None:
            yield opening + b"null}"
            continue
        yield opening + b'"data:image/x;base64,'
        for start in range(0, len(part.data), _PIECE_BYTES):
            yield binascii.b2a_base64(part.data[start : start + _PIECE_BYTES], newline=False)
            await asyncio.sleep(0)
        yield b'"}'
    yield b"]}"
