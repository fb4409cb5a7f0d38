"""Static files of the pages, read once and served with a content security policy that allows only this server."""

from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response

from tokenwire.coordinator.api.router import ApiRouter

_HEADERS = {
    # Nothing inline, no other origin, and no markup or code made from texts.
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}


def add_files(router: ApiRouter, files: Mapping[str, tuple[str, str]]) -> None:
    """Add a route for each path: a file in this folder, and its media type."""
    folder = Path(__file__).parent
    for path, (name, media_type) in files.items():
        send = _file(folder / name, media_type)
        router.add(path, send, ["GET", "HEAD"], documented=False)


def _file(path: Path, media_type: str) -> Callable[[Request], Awaitable[Response]]:
    content = path.read_bytes()

    async def send(request: Request) -> Response:
        return Response(content, media_type=media_type, headers=_HEADERS)

    return send
