"""GET /openapi.json, and /docs: the document, and a self-contained page that renders it."""

import asyncio
import functools
from collections.abc import Sequence

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from tokenwire.coordinator.api.json_text import json_bytes
from tokenwire.coordinator.api.openapi.security import Security
from tokenwire.coordinator.api.router import ApiRouter
from tokenwire.coordinator.api.status_page.files import add_files

_FILES = {
    "/docs": ("docs.html", "text/html"),
    "/docs/style.css": ("style.css", "text/css"),
    "/docs/docs.js": ("docs.js", "text/javascript"),
    "/docs/attempt.js": ("attempt.js", "text/javascript"),
    "/docs/theme.js": ("theme.js", "text/javascript"),
    "/docs/schema.js": ("schema.js", "text/javascript"),
    "/docs/elements.js": ("elements.js", "text/javascript"),
    "/docs/server.js": ("server.js", "text/javascript"),
}
_DOCUMENT = "/openapi.json"
DOCUMENTATION_PATHS = frozenset({*_FILES, _DOCUMENT})
"""Paths that need no API key: they reveal no more than this project's documentation."""


def documentation_routes(routes: Sequence[BaseRoute], security: Security) -> ApiRouter:
    """Return the routes that describe the others."""
    router = ApiRouter(documented=False)
    add_files(router, _FILES)

    def write_document() -> bytes:
        # On the first request, because most servers get none: the models of responses delay a start.
        from tokenwire.coordinator.api.openapi.document import openapi_document

        return json_bytes(openapi_document(routes, security))

    @functools.cache
    def document() -> "asyncio.Task[bytes]":
        return asyncio.create_task(asyncio.to_thread(write_document))  # in a thread, because it is slow

    @router.get(_DOCUMENT)
    async def show_document(request: Request) -> Response:
        return Response(await asyncio.shield(document()), media_type="application/json")

    return router
