"""Static files of the pages."""

from starlette.applications import Starlette
from starlette.testclient import TestClient
from starlette.types import Receive, Scope, Send

from tests.coordinator.fakes import request_context
from tokenwire.coordinator.api.router import ApiRouter
from tokenwire.coordinator.api.status_page.files import add_files
from tokenwire.coordinator.generation.context import CONTEXT


def test_files_are_served_with_their_type_and_policy() -> None:
    """Browsers revalidate files, and run nothing of other origins."""
    router = ApiRouter()
    add_files(router, {"/style": ("style.css", "text/css")})
    files = Starlette(routes=router.routes)

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await files({**scope, CONTEXT: request_context()}, receive, send)

    client = TestClient(app)

    answer, head = client.get("/style"), client.head("/style")

    assert (answer.status_code, head.status_code, head.content) == (200, 200, b"")
    assert answer.headers["content-type"].startswith("text/css")
    assert answer.headers["content-security-policy"].startswith("default-src 'none'; script-src 'self'")
    assert (answer.headers["cache-control"], answer.headers["x-content-type-options"]) == ("no-cache", "nosniff")
    assert answer.content
