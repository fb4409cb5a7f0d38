"""Outcomes of requests, by their records, and the trace context that they propagate."""

import pytest

from tokenwire.coordinator.observability.record import Outcome, RequestRecord, trace_headers
from tokenwire.errors import DeadlineExceeded, EngineFailed, TokenwireError

_TRACE_PARENT = b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.mark.parametrize(
    ("status", "error", "outcome"),
    [
        (200, None, "ok"),
        (400, None, "invalid"),
        (429, None, "rejected"),
        (503, None, "unavailable"),
        (499, None, "client_disconnected"),
        (500, None, "error"),
        (200, EngineFailed("broken"), "error"),
        (200, DeadlineExceeded("late"), "deadline"),
    ],
)
def test_the_outcome_is_that_of_the_reply(status: int, error: TokenwireError | None, outcome: Outcome) -> None:
    """A stream that fails is not a success, although its status was one."""
    assert RequestRecord(status=status, error=error).outcome == outcome


def test_a_disconnect_determines_the_outcome() -> None:
    """In any state of the request."""
    assert RequestRecord(status=200, client="client_slow").outcome == "client_slow"


def test_only_the_context_is_propagated() -> None:
    """No other headers."""
    headers = [(b"traceparent", _TRACE_PARENT), (b"tracestate", b"vendor=1"), (b"authorization", b"Bearer x")]
    assert trace_headers(headers) == {"traceparent": _TRACE_PARENT.decode(), "tracestate": "vendor=1"}


@pytest.mark.parametrize("parent", [b"", b"00-1-2-01", _TRACE_PARENT + b"x", b"\xff" * 55])
def test_an_invalid_context_is_not_propagated(parent: bytes) -> None:
    """Neither is its state."""
    assert trace_headers([(b"traceparent", parent), (b"tracestate", b"vendor=1")]) == {}


def test_a_state_that_is_too_long_is_dropped() -> None:
    """As the standard allows."""
    headers = [(b"traceparent", _TRACE_PARENT), (b"tracestate", b"v=" + b"1" * 600)]
    assert list(trace_headers(headers)) == ["traceparent"]
