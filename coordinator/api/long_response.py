"""JSON objects with a long array: encoded and sent element by element, so that other requests get their turn."""

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from tokenwire.coordinator.api.json_text import json_bytes

_BYTES_BETWEEN_YIELDS = 64 * 1024
_VALUES_BETWEEN_YIELDS = 8192


class LongResponse(Response):
    """A JSON response that is complete, in parts."""

    media_type = "application/json"

    def __init__(self, parts: Sequence[bytes]) -> None:
        self.status_code, self.background = 200, None
        self._parts = parts
        self.init_headers({"content-length": str(sum(map(len, parts)))})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the parts; with a slow reader, each waits for those before it."""
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        for part in self._parts:
            await send({"type": "http.response.body", "body": part, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def long_response(body: Mapping[str, Any], array: str) -> LongResponse:
    """Encode an object one of whose values, `array`, is an iterable of objects that are made as they are encoded, or
    are JSON already.

    No key before it may have the same name.
    """
    elements: Iterable[Mapping[str, Any] | bytes] = body[array]
    head, name, tail = json_bytes({**body, array: []}).partition(f'"{array}":['.encode())
    parts, part = [], bytearray(head + name)
    for index, element in enumerate(elements):
        part += b"," * bool(index) + (element if isinstance(element, bytes) else json_bytes(element))
        if len(part) > _BYTES_BETWEEN_YIELDS:
            parts.append(bytes(part))
            part.clear()
            await asyncio.sleep(0)
    return LongResponse([*parts, bytes(part + tail)])


def slices(values: Sequence[Any]) -> Iterator[Sequence[Any]]:
    """Yield a long list in parts that take a millisecond or two to encode."""
    return (values[start : start + _VALUES_BETWEEN_YIELDS] for start in range(0, len(values), _VALUES_BETWEEN_YIELDS))


async def with_long_lists(body: Mapping[str, Any], lists: Mapping[str, Iterable[Sequence[Any]] | None]) -> LongResponse:
    """Return an object that has, after its other fields, long lists, given in slices; None is null."""
    return LongResponse(await long_object(body, lists))


async def long_object(body: Mapping[str, Any], lists: Mapping[str, Iterable[Sequence[Any]] | None]) -> list[bytes]:
    """Encode such an object, in parts."""
    parts = [json_bytes(body)[:-1]]
    for name, values in lists.items():
        parts.append(b"," * (len(parts) > 1 or bool(body)) + json_bytes(name) + b":")
        if values is None:
            parts.append(b"null")
            continue
        parts.append(b"[")
        for index, part in enumerate(values):
            parts.append(b"," * bool(index) + json_bytes(list(part))[1:-1])
            await asyncio.sleep(0)
        parts.append(b"]")
    return [*parts, b"}"]
