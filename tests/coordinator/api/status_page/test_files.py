"""Static files of the pages."""

from starlette.applications import Starlette
from starlette.testclient import TestClient

from tokenwire.coordinator.api.router import ApiRouter
from tokenwire.coordinator.api.status_page.files import add_files


def test_files_are_served_with_their_type_and_policy() -> None:
    """Browsers revalidate files, and run nothing of other origins."""
    router = ApiRouter()
    add_files(router, {"/style": ("style.css", "text/css")})
    client = TestClient(Starlette(routes=router.routes))

    answer, head = client.get("/style"), client.head("/style")

    assert (answer.status_code, head.status_code, head.content) == (200, 200, b"")
    assert answer.headers["content-type"].startswith("text/css")
    assert answer.headers["content-security-policy"].startswith("default-src 'none'; script-src 'self'")
    assert (answer.headers["cache-control"], answer.headers["x-content-type-options"]) == ("no-cache", "nosniff")
    assert answer.content
