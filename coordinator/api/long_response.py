"""Responses of JSON that is made as their clients read it: others have their turn, and no second copy is kept."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, islice
from typing import Any

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from tokenwire.coordinator.api.api_request import context_of
from tokenwire.coordinator.api.json_pieces import MOST_BYTES, array_of, in_parts, is_long, long_object, object_pieces
from tokenwire.coordinator.api.json_text import json_bytes


class LongResponse(Response):
    """A response that is complete, in parts; a short one is one part, and has its length."""

    def __init__(self, pieces: Iterable[bytes], media_type: str = "application/json") -> None:
        """Make the first part. Raises what making it raises."""
        self.status_code, self.background, self.media_type = 200, None, media_type
        self._parts = in_parts(pieces)
        self._first = next(self._parts, b"")
        self._second = next(self._parts, b"")
        self.init_headers({} if self._second else {"content-length": str(len(self._first))})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the parts. With a slow reader, each is made when those before it are read."""
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        part, self._first = self._first, b""
        if self._second:
            context = context_of(scope)
            following, self._second = self._second, b""
            while following and not context.connection.lost:
                await send({"type": "http.response.body", "body": part, "more_body": True})
                await asyncio.sleep(0)
                part, following = following, next(self._parts, b"")
            if context.connection.lost:
                context.record_client()
                return
        await send({"type": "http.response.body", "body": part, "more_body": False})


def long_response(body: Mapping[str, Any], array: str) -> Response:
    """Return an object one of whose values, `array`, is an iterable of objects that are made as they are sent, or are
    JSON already.
    """
    elements = iter(body[array])
    first = [*islice(elements, 2)]
    if len(first) == 1 and type(first[0]) is dict and not (is_long(body) or is_long(first[0])):  # as most replies
        whole = json_bytes({**body, array: first})
        if len(whole) <= MOST_BYTES:
            return Response(whole, media_type="application/json")
        return LongResponse([whole])
    return LongResponse(object_pieces({**body, array: array_of(chain(first, elements))}))


def with_long_lists(body: Mapping[str, Any], lists: Mapping[str, Iterable[Sequence[Any]] | None]) -> LongResponse:
    """Return an object that has, after its other fields, long lists, given in slices; None is null."""
    return LongResponse(long_object(body, lists))
