"""The context of one request."""

import math

import pytest

from tests.coordinator.fakes import request_context
from tokenwire.errors import DeadlineExceeded


def test_the_time_left_is_that_until_the_deadline() -> None:
    """By the context's own clock; at the deadline it is an error."""
    now = 10.0
    context = request_context(clock=lambda: now)
    context.deadline = 12.5
    assert context.time_left_s() == 2.5
    now = 12.5

    with pytest.raises(DeadlineExceeded):
        context.time_left_s()


def test_without_a_deadline_time_is_unlimited() -> None:
    """So that it can be compared with other limits."""
    assert request_context().time_left_s() == math.inf


def test_the_error_of_a_deadline_has_the_time_that_was_allowed() -> None:
    """Since the request arrived, not since its body was read."""
    context = request_context()
    context.deadline = context.record.began_at + 1.5

    assert context.deadline_error.message == "Request timed out after 1.5 s."


def test_a_request_that_outlives_the_drain_fails_with_a_time_to_retry() -> None:
    """Until the time is up it is cancelled for other reasons."""
    context = request_context()
    assert context.drain_error is None
    context.readiness.stopping = True
    assert context.drain_error is None
    context.readiness.out_of_time = True

    assert context.drain_error is not None
    assert (context.drain_error.retry_after_s, "shut down" in context.drain_error.message) == (1, True)
