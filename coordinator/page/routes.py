"""GET /, its files and /status.json. The files hold no data: the page asks for it, with the API key of its user."""

from pathlib import Path
from typing import Any

from fastapi import APIRouter
from starlette.responses import JSONResponse, Response

from coordinator.page.snapshot import Snapshot

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
"""What needs no API key."""

_HEADERS = {
    # Nothing from elsewhere, nothing inline, and nowhere to send anything but here.
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}


def page_routes(snapshot: Snapshot) -> APIRouter:
    """Return the routes of the status page."""
    router = APIRouter(include_in_schema=False)
    folder = Path(__file__).parent
    for path, (name, media_type) in _FILES.items():
        router.add_api_route(path, _file(folder / name, media_type), methods=["GET", "HEAD"])

    @router.get("/status.json")
    async def status() -> Response:
        return JSONResponse(snapshot.take(), headers={"Cache-Control": "no-store"})

    return router


def _file(path: Path, media_type: str) -> Any:
    content = path.read_bytes()

    async def send() -> Response:
        return Response(content, media_type=media_type, headers=_HEADERS)

    return send
