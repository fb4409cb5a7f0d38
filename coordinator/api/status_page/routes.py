"""GET /, its files and /status.json. The files hold no data: the page fetches it with its user's API key."""

from fastapi import APIRouter
from starlette.responses import JSONResponse, Response

from tokenwire.coordinator.api.status_page.files import add_files
from tokenwire.coordinator.api.status_page.snapshot import Snapshot

_FILES = {
    "/": ("index.html", "text/html"),
    "/page/style.css": ("style.css", "text/css"),
    "/page/main.js": ("main.js", "text/javascript"),
    "/page/elements.js": ("elements.js", "text/javascript"),
    "/page/server.js": ("server.js", "text/javascript"),
    "/page/status.js": ("status.js", "text/javascript"),
    "/page/chat.js": ("chat.js", "text/javascript"),
}
PAGE_PATHS = frozenset(_FILES)
"""Paths that need no API key."""


def page_routes(snapshot: Snapshot) -> APIRouter:
    """Return the routes of the status page."""
    router = APIRouter()
    add_files(router, _FILES)

    @router.get("/status.json")
    async def status() -> Response:
        return JSONResponse(snapshot.take(), headers={"Cache-Control": "no-store"})

    return router
