"""The context of one request."""

from tests.coordinator.fakes import request_context


def test_a_request_that_outlives_the_drain_is_told_when_to_return() -> None:
    """Until the time is up it is cancelled for other reasons."""
    context = request_context()
    assert context.drain_error is None
    context.readiness.stopping = True
    assert context.drain_error is None
    context.readiness.out_of_time = True

    assert context.drain_error is not None
    assert (context.drain_error.retry_after_s, "shut down" in context.drain_error.message) == (1, True)
