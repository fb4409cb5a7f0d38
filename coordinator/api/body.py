"""Bodies of requests: JSON whose strings are Unicode text, without what no client may ask of an engine."""

import json
from collections.abc import AsyncGenerator, Callable, Coroutine
from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.routing import APIRoute
from pydantic_core import from_json
from starlette.exceptions import HTTPException

from tokenwire.coordinator.api.body_shape import check_shape
from tokenwire.coordinator.generation.context import CONTEXT, RequestContext
from tokenwire.coordinator.generation.limits import check_no_transfer_fields
from tokenwire.errors import Malformed
from tokenwire.gc_tuning import gc_disabled

_SMALL_BYTES = 64 * 1024
"""A body of this size is parsed in less than a millisecond, whatever is in it."""


def parse_json(body: bytes) -> Any:
    """Parse a body. Raises ValueError and RecursionError as json.loads does, Malformed for strings that are no text.

    JSON may spell half of a surrogate pair ("\\ud800"), and Python keeps it: then protobuf, tokenizers and answers
    break on it, in vLLM as a 500 or in mid-stream. Here it is refused, before anything is made of the request.
    """
    try:
        return from_json(body, cache_strings="keys")  # the quicker parser, which takes nothing but text
    except ValueError:
        # The other one says better what is wrong, and takes more: deeper nesting, a byte order mark.
        parsed = json.loads(body)
    for name, value in parsed.items() if isinstance(parsed, dict) else [("body", parsed)]:
        _check_text(name, value)
    return parsed


def _check_text(name: str, value: Any) -> None:
    try:
        json.dumps([name, value], ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        shown = name.encode(errors="backslashreplace").decode()
        half = error.object[error.start].encode(errors="backslashreplace").decode()
        raise Malformed(f"{shown}: {half} is half of a surrogate pair, which is no character.", param=shown) from None


class ApiRequest(Request):
    """A request as routes get it."""

    hands_on_transfers = False

    @property
    def context(self) -> RequestContext:
        """The request's context."""
        context: RequestContext = self.scope[CONTEXT]
        return context

    async def stream(self) -> AsyncGenerator[bytes, None]:
        """Yield the body, piece by piece. Raises HTTPException as soon as it is larger than it may be."""
        received, limit = 0, self.context.max_body_bytes
        async for piece in super().stream():
            received += len(piece)
            if limit is not None and received > limit:
                # The one exception that FastAPI passes through while it reads a body.
                raise HTTPException(
                    413, f"The request's body is larger than {limit} bytes.", headers={"connection": "close"}
                )
            yield piece

    async def json(self) -> Any:
        if not hasattr(self, "_json"):
            body = await self.body()
            if len(body) <= _SMALL_BYTES:
                self._json = parse_json(body)
            else:
                await check_shape(body)
                with gc_disabled():
                    self._json = parse_json(body)
            self.context.record.set_body(self._json)
            if not self.hands_on_transfers:
                check_no_transfer_fields(self._json)
        return self._json


class _TransferRequest(ApiRequest):
    hands_on_transfers = True


class _ApiRoute(APIRoute):
    reads: type[ApiRequest] = ApiRequest

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handler = super().get_route_handler()

        async def handle(request: Request) -> Response:
            return await handler(self.reads(request.scope, request.receive, request._send))

        return handle


class _TransferRoute(_ApiRoute):
    reads = _TransferRequest


def api_router(hands_on_transfers: bool = False, **options: Any) -> APIRouter:
    """Return a router whose routes read their bodies so.

    hands_on_transfers: they know `kv_transfer_params` and `ec_transfer_params`, and let `Generation` judge them. All
    others refuse these, whoever allowed them: a field that has one engine read another's memory is never ignored.
    """
    return APIRouter(route_class=_TransferRoute if hands_on_transfers else _ApiRoute, **options)
