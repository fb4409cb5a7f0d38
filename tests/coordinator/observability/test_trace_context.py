"""What of a request's trace context goes on."""

import pytest

from tokenwire.coordinator.observability.trace_context import trace_headers

_PARENT = b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def test_the_context_goes_on_and_nothing_else() -> None:
    """Other headers are the client's business with us."""
    headers = [(b"traceparent", _PARENT), (b"tracestate", b"vendor=1"), (b"authorization", b"Bearer x")]
    assert trace_headers(headers) == {"traceparent": _PARENT.decode(), "tracestate": "vendor=1"}


@pytest.mark.parametrize("parent", [b"", b"00-1-2-01", _PARENT + b"x", b"\xff" * 55])
def test_a_context_that_is_none_does_not_go_on(parent: bytes) -> None:
    """Neither does its state."""
    assert trace_headers([(b"traceparent", parent), (b"tracestate", b"vendor=1")]) == {}


def test_a_state_that_is_too_long_is_left_behind() -> None:
    """As the standard allows."""
    headers = [(b"traceparent", _PARENT), (b"tracestate", b"v=" + b"1" * 600)]
    assert list(trace_headers(headers)) == ["traceparent"]
