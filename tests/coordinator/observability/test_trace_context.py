"""Propagation of a request's trace context."""

import pytest

from tokenwire.coordinator.observability.trace_context import trace_headers

_PARENT = b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def test_only_the_context_is_propagated() -> None:
    """No other headers."""
    headers = [(b"traceparent", _PARENT), (b"tracestate", b"vendor=1"), (b"authorization", b"Bearer x")]
    assert trace_headers(headers) == {"traceparent": _PARENT.decode(), "tracestate": "vendor=1"}


@pytest.mark.parametrize("parent", [b"", b"00-1-2-01", _PARENT + b"x", b"\xff" * 55])
def test_an_invalid_context_is_not_propagated(parent: bytes) -> None:
    """Neither is its state."""
    assert trace_headers([(b"traceparent", parent), (b"tracestate", b"vendor=1")]) == {}


def test_a_state_that_is_too_long_is_dropped() -> None:
    """As the standard allows."""
    headers = [(b"traceparent", _PARENT), (b"tracestate", b"v=" + b"1" * 600)]
    assert list(trace_headers(headers)) == ["traceparent"]
