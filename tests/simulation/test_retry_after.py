"""Each 429 and 503 says when to come back, in one way."""

import pytest

from tests.simulation.retry_after import retry_problem

_QUEUED = (
    "All workers of m are busy, and its queue has 3 of at most 3 sequences (--max-queue): no room for 1 more. "
    "Try again in 7 s."
)


@pytest.mark.parametrize(
    ("status", "value", "message", "is_wrong"),
    [
        (429, b"7", _QUEUED, False),
        (429, b"8", _QUEUED, True),
        (429, None, _QUEUED, True),
        (503, b"1", "No worker serves m right now", False),
        (503, None, "No worker serves m right now", True),
        (503, b"0", "No worker serves m right now", True),
        (503, b"1.5", "No worker serves m right now", True),
        (503, b"61", "No worker serves m right now", True),
        (429, b"61", "Rate limit reached for t: 5 tokens per minute.", False),
        (504, b"1", "Request timed out", True),
        (504, None, "Request timed out", False),
    ],
)
def test_a_wait_is_whole_seconds_and_what_the_message_says(
    status: int, value: bytes | None, message: str, is_wrong: bool
) -> None:
    """A queue says a minute at most."""
    headers = {} if value is None else {b"retry-after": value}
    assert bool(retry_problem(status, headers, message)) is is_wrong
