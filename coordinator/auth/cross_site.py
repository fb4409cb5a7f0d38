"""Whether a browser sends a request for a page of another site, told by what browsers say of that."""

from urllib.parse import urlsplit

from starlette.datastructures import Headers

_OWN = ("same-origin", "none")
"""From our own page, or by hand. same-site is another port of this machine: another service's page."""


def is_cross_site(headers: Headers) -> bool:
    """Tell whether another site's page sent a request. Clients that are no browsers say nothing, and are none."""
    fetch_site = headers.get("sec-fetch-site")
    if fetch_site is not None:
        return fetch_site not in _OWN
    origin = headers.get("origin")  # browsers from before 2023 say only this, and only where they write
    return origin is not None and urlsplit(origin).netloc != headers.get("host")
