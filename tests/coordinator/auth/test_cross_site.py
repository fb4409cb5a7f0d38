"""What browsers say of who sends a request."""

import pytest
from starlette.datastructures import Headers

from tokenwire.coordinator.auth.cross_site import is_cross_site

HOST = {"host": "localhost:8000"}


@pytest.mark.parametrize(
    ("headers", "cross_site"),
    [
        ({}, False),
        ({"sec-fetch-site": "none"}, False),
        ({"sec-fetch-site": "same-origin", "origin": "https://behind-a-proxy.example"}, False),
        ({"sec-fetch-site": "same-site", "origin": "http://localhost:3000"}, True),
        ({"sec-fetch-site": "cross-site", "origin": "https://evil.example"}, True),
        ({"sec-fetch-site": "cross-site"}, True),
        ({"origin": "http://localhost:8000"}, False),
        ({"origin": "http://localhost:3000"}, True),
        ({"origin": "https://evil.example"}, True),
        ({"origin": "null"}, True),
        ({"origin": ""}, True),
    ],
)
def test_browsers_tell_whose_page_sends(headers: dict[str, str], cross_site: bool) -> None:
    """Newer ones say how the page stands to the server, older ones whose it is; other clients say nothing."""
    assert is_cross_site(Headers(HOST | headers)) is cross_site
