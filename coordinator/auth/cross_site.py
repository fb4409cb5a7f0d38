"""Detects cross-site requests of browsers, by fetch metadata or Origin."""

from urllib.parse import urlsplit

from starlette.datastructures import Headers

_OWN = ("same-origin", "none")
"""From our own page, or from the user. same-site may be another port of this machine: another service's page."""


def is_cross_site(headers: Headers) -> bool:
    """Return whether another site's page sent a request. Clients other than browsers send neither header."""
    fetch_site = headers.get("sec-fetch-site")
    if fetch_site is not None:
        return fetch_site not in _OWN
    origin = headers.get("origin")  # browsers from before 2023 send only this, and only for writes
    return origin is not None and urlsplit(origin).netloc != headers.get("host")
