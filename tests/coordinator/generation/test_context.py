"""The context of one request."""

import asyncio
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


async def test_what_comes_before_a_submission_ends_at_the_deadline() -> None:
    """Whatever is waited for; what is submitted has its own timer, and other timeouts stay what they are."""
    context = request_context()
    context.deadline = context.clock() + 0.01
    with pytest.raises(DeadlineExceeded, match="timed out"):
        async with context.in_time():
            await asyncio.Event().wait()

    context.deadline = context.clock() + 10
    with pytest.raises(TimeoutError):
        async with context.in_time(), asyncio.timeout(0):
            await asyncio.Event().wait()
    context.deadline = context.clock()
    with pytest.raises(DeadlineExceeded):
        async with context.in_time():
            raise AssertionError("it began after the deadline")


async def test_a_request_that_is_submitted_in_time_is_not_ended_before_its_reply() -> None:
    """Its reply would lose what it has so far."""
    context = request_context()
    context.deadline = context.clock() + 0.01
    async with context.in_time():
        context.time_for_reply_s()
        after = asyncio.Event()
        asyncio.get_running_loop().call_later(0.02, after.set)
        await after.wait()


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
