"""Outcomes of requests, by their records."""

import pytest

from tokenwire.coordinator.observability.record import Outcome, RequestRecord
from tokenwire.errors import DeadlineExceeded, EngineFailed, TokenwireError


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
