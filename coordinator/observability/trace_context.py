"""W3C trace context: the headers propagated to workers."""

import re
from collections.abc import Iterable

_TRACEPARENT = re.compile(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")
_MAX_STATE = 512


def trace_headers(headers: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    """Return traceparent and tracestate of a request; empty without a valid traceparent."""
    given = {
        name.decode(): value.decode("latin-1") for name, value in headers if name in (b"traceparent", b"tracestate")
    }
    if not _TRACEPARENT.fullmatch(given.get("traceparent", "")):
        return {}
    if len(given.get("tracestate", "")) > _MAX_STATE:
        del given["tracestate"]
    return given
