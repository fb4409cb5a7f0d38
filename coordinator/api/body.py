"""Request bodies: JSON whose strings are valid Unicode, without fields that clients must not set on engines."""

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
from tokenwire.process.gc_tuning import gc_disabled

_SMALL_BYTES = 64 * 1024
"""A body of this size is parsed in less than a millisecond, whatever its contents."""


def parse_json(body: bytes) -> Any:
    """Parse a body. Raises ValueError and RecursionError as json.loads does, Malformed for unpaired surrogates.

    JSON can escape an unpaired surrogate ("\\ud800"), and Python keeps it. Protobuf, tokenizers and responses would
    fail on it later, in vLLM with a 500 or mid-stream.
    """
    try:
        return from_json(body, cache_strings="keys")  # the faster parser; rejects unpaired surrogates
    except ValueError:
        # json has better messages, and accepts more: deeper nesting, a byte order mark.
        parsed = json.loads(body)
    for name, value in parsed.items() if isinstance(parsed, dict) else [("body", parsed)]:
        _check_text(name, value)
    return parsed


def _check_text(name: str, value: Any) -> None:
    try:
        json.dumps([name, value], ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        shown = name.encode(errors="backslashreplace").decode()
        surrogate = error.object[error.start].encode(errors="backslashreplace").decode()
        raise Malformed(f"{shown}: {surrogate} is an unpaired surrogate.", param=shown) from None


class ApiRequest(Request):
    """The request class of routes."""

    accepts_transfers = False

    @property
    def context(self) -> RequestContext:
        """The request's context."""
        context: RequestContext = self.scope[CONTEXT]
        return context

    async def stream(self) -> AsyncGenerator[bytes, None]:
        """Yield the body in pieces. Raises HTTPException as soon as it exceeds the limit."""
        received, limit = 0, self.context.max_body_bytes
        async for piece in super().stream():
            received += len(piece)
            if limit is not None and received > limit:
                # The only exception that FastAPI passes through while it reads a body.
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
            if not self.accepts_transfers:
                check_no_transfer_fields(self._json)
        return self._json


class _TransferRequest(ApiRequest):
    accepts_transfers = True


class _ApiRoute(APIRoute):
    reads: type[ApiRequest] = ApiRequest

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handler = super().get_route_handler()

        async def handle(request: Request) -> Response:
            return await handler(self.reads(request.scope, request.receive, request._send))

        return handle


class _TransferRoute(_ApiRoute):
    reads = _TransferRequest


def api_router(accepts_transfers: bool = False, **options: Any) -> APIRouter:
    """Return a router whose routes read their bodies as an ApiRequest does.

    accepts_transfers: they have `kv_transfer_params` and `ec_transfer_params`, which `GenerationService` checks. All
    others reject these fields even where they are allowed: fields that make engines read each other's memory are
    never ignored.
    """
    return APIRouter(route_class=_TransferRoute if accepts_transfers else _ApiRoute, **options)
