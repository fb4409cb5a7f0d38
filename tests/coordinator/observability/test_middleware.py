"""The record of a request, from its begin to its end."""

import pytest
from starlette.types import Message, Receive, Scope, Send

from tokenwire.coordinator.observability.middleware import RecordMiddleware
from tokenwire.coordinator.observability.record import Outcome, RequestRecord, record_of
from tokenwire.errors import DeadlineExceeded, EngineFailed, TokenwireError


class Listener:
    """Remembers records."""

    def __init__(self) -> None:
        self.begun: list[RequestRecord] = []
        self.records: list[RequestRecord] = []

    def began(self, record: RequestRecord) -> None:
        """Remember."""
        self.begun.append(record)

    def ended(self, record: RequestRecord) -> None:
        """Remember."""
        self.records.append(record)


async def _receive() -> Message:
    return {"type": "http.request"}


async def _send(message: Message) -> None:
    pass


async def test_listeners_hear_of_the_begin_and_of_a_complete_record() -> None:
    """What the application notes and answers is in it."""
    listener = Listener()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        assert listener.begun == [record_of(scope)]
        record_of(scope).model = "digits"
        await send({"type": "http.response.start", "status": 404, "headers": []})

    await RecordMiddleware(app, [listener])({"type": "http", "method": "GET", "headers": []}, _receive, _send)
    (record,) = listener.records
    assert (record.model, record.status, record.outcome) == ("digits", 404, "invalid")
    assert record.duration_s >= 0


async def test_a_listener_that_breaks_breaks_alone() -> None:
    """The request is served, and the other listeners hear of it."""

    class Broken(Listener):
        def began(self, record: RequestRecord) -> None:
            raise ValueError("cannot begin")

        def ended(self, record: RequestRecord) -> None:
            raise ValueError("cannot end")

    listener, sent = Listener(), []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        sent.append(scope)

    await RecordMiddleware(app, [Broken(), listener])({"type": "http", "method": "GET", "headers": []}, _receive, _send)

    assert (len(sent), len(listener.begun), len(listener.records)) == (1, 1, 1)


async def test_an_application_that_breaks_is_observed_as_an_error() -> None:
    """The exception goes on to whoever answers it."""
    listener = Listener()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        await RecordMiddleware(app, [listener])({"type": "http", "method": "GET", "headers": []}, _receive, _send)
    assert listener.records[0].outcome == "error"


@pytest.mark.parametrize(
    ("status", "error", "outcome"),
    [
        (200, None, "ok"),
        (400, None, "invalid"),
        (429, None, "refused"),
        (503, None, "unavailable"),
        (499, None, "client_left"),
        (500, None, "error"),
        (200, EngineFailed("broken"), "error"),
        (200, DeadlineExceeded("late"), "deadline"),
    ],
)
def test_the_outcome_is_that_of_the_reply(status: int, error: TokenwireError | None, outcome: Outcome) -> None:
    """A stream that breaks off is no success, although its status was one."""
    assert RequestRecord(status=status, error=error).outcome == outcome


def test_a_client_that_leaves_decides_the_outcome() -> None:
    """Whatever was under way."""
    assert RequestRecord(status=200, client="client_slow").outcome == "client_slow"
