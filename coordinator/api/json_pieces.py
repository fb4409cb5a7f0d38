"""JSON that is made in pieces, each of which takes a few milliseconds, so that others have their turn in between."""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

from tokenwire.coordinator.api.json_text import json_bytes

_BYTES_BETWEEN_YIELDS = 64 * 1024
_VALUES_BETWEEN_YIELDS = 8192
MOST_BYTES = 2 * _BYTES_BETWEEN_YIELDS
"""Of what a connection gets at a time."""


class JsonPieces:
    """A value in pieces, each of which takes a few milliseconds to make; it may be a value of an object."""

    __slots__ = ("_make",)

    def __init__(self, make: Callable[[], Iterator[bytes]]) -> None:
        """`make` returns the pieces, and may be called again."""
        self._make = make

    def __iter__(self) -> Iterator[bytes]:
        return self._make()


def is_long(body: Mapping[str, Any]) -> bool:
    """Return whether an object has JsonPieces."""
    return JsonPieces in map(type, body.values())


def object_pieces(body: Mapping[str, Any]) -> Iterator[bytes]:
    """Yield an object in pieces; what is long of it is JsonPieces."""
    run: dict[str, Any] = {}
    start = b"{"
    for name, value in body.items():
        if type(value) is not JsonPieces:
            run[name] = value
            continue
        head = json_bytes(run)[1:-1] + b"," if run else b""
        yield start + head + json_bytes(name) + b":"
        yield from value
        start, run = b",", {}
    if run:
        yield start + json_bytes(run)[1:]
    else:
        yield b"{}" if start == b"{" else b"}"


def array_of(elements: Iterable[Mapping[str, Any] | JsonPieces | bytes]) -> JsonPieces:
    """Return an array of objects, in pieces or as of `object_pieces`, which are made as they are sent, or are JSON."""

    def pieces() -> Iterator[bytes]:
        start = b"["
        for element in elements:
            if isinstance(element, bytes):
                yield start + element
            elif not isinstance(element, JsonPieces) and not is_long(element):
                yield start + json_bytes(element)
            else:
                of_element = iter(element) if isinstance(element, JsonPieces) else object_pieces(element)
                yield start + next(of_element)
                yield from of_element
            start = b","
        yield b"[]" if start == b"[" else b"]"

    return JsonPieces(pieces)


def text_in_parts(text: str) -> JsonPieces:
    """Return a text, a long one without a second copy of it."""

    def pieces() -> Iterator[bytes]:
        yield b'"'
        for start in range(0, len(text), _BYTES_BETWEEN_YIELDS):
            yield json_bytes(text[start : start + _BYTES_BETWEEN_YIELDS])[1:-1]
        yield b'"'

    return JsonPieces(pieces)


def array_in_parts(parts: Iterable[Sequence[Any]]) -> JsonPieces:
    """Return an array that is given in slices."""

    def pieces() -> Iterator[bytes]:
        start = b"["
        for part in parts:
            if encoded := json_bytes(part if isinstance(part, list) else list(part))[1:-1]:
                yield start + encoded
                start = b","
        yield b"[]" if start == b"[" else b"]"

    return JsonPieces(pieces)


def long_object(body: Mapping[str, Any], lists: Mapping[str, Iterable[Sequence[Any]] | None]) -> Iterator[bytes]:
    """Yield such an object in pieces."""
    return object_pieces(
        {**body, **{name: None if parts is None else array_in_parts(parts) for name, parts in lists.items()}}
    )


def slices(values: Sequence[Any]) -> Iterator[Sequence[Any]]:
    """Yield a long list in parts that take a millisecond or two to encode."""
    return (values[start : start + _VALUES_BETWEEN_YIELDS] for start in range(0, len(values), _VALUES_BETWEEN_YIELDS))


def in_parts(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Yield pieces together, as many as are worth a turn, and longer ones in parts: a connection keeps all of a part
    until its client has read it.
    """
    some: list[bytes] = []
    size = 0
    for piece in chain.from_iterable(map(_cut, pieces)):
        some.append(piece)
        size += len(piece)
        if size > _BYTES_BETWEEN_YIELDS:
            part, some, size = b"".join(some), [], 0
            yield part
    if some:
        yield b"".join(some)


def _cut(piece: bytes) -> Sequence[bytes] | Iterator[bytes]:
    if len(piece) <= MOST_BYTES:
        return (piece,)
    return (piece[start : start + MOST_BYTES] for start in range(0, len(piece), MOST_BYTES))


async def in_turns(pieces: Iterable[bytes]) -> bytes:
    """Return all pieces as one, with a turn for others after each part."""
    made = bytearray()
    for part in in_parts(pieces):
        made += part
        await asyncio.sleep(0)
    return bytes(made)
