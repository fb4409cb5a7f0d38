"""Streams of named events and of ids: equal for any grouping of tokens, different for any other change."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.conformance.parity.compare import compare
from tests.conformance.parity.request import GENERATE, RESPONSES, Reply, Request

RESPONSE = Request(RESPONSES, {"input": "Hi", "stream": True})
IDS = Request(GENERATE, {"token_ids": [1], "stream": True})
Events = list[dict[str, Any]]


def named(events: Events) -> Reply:
    """Wrap events as a response."""
    shown = "".join(f"event: {each['type']}\ndata: {json.dumps(each)}\n\n" for each in events)
    return Reply(200, "text/event-stream", shown)


def deltas(*texts: str, id_: str = "resp_1") -> Events:
    """Return a response whose text is split into deltas."""
    events: Events = [{"type": "response.created", "response": {"id": id_, "created_at": 1}}]
    events += [{"type": "response.output_text.delta", "item_id": f"msg_{id_}", "delta": text} for text in texts]
    events.append({"type": "response.completed", "response": {"id": id_, "created_at": 1}})
    return [{**event, "sequence_number": number} for number, event in enumerate(events)]


def stream_of_ids(*chunks: list[int]) -> Reply:
    """Return a stream of ids."""
    events = [{"request_id": "a-1", "choices": [{"index": 0, "token_ids": each, "logprobs": None}]} for each in chunks]
    return Reply(200, "text/event-stream", "".join(f"data: {json.dumps(event)}\n\n" for event in events))


def test_the_grouping_of_tokens_is_not_compared() -> None:
    """Several deltas equal one; generated ids are not compared."""
    assert compare(RESPONSE, named(deltas("One two")), named(deltas("One", " two", id_="resp_2"))) == []
    assert compare(IDS, stream_of_ids([1, 2, 3]), stream_of_ids([1], [2, 3])) == []


@pytest.mark.parametrize(
    "change",
    [
        lambda events: events[1].update(delta="Two"),
        lambda events: events[1].update(sequence_number=7),
        lambda events: events[1].update(item_id="call_1"),
        lambda events: events[-1].update(type="response.incomplete"),
        lambda events: events[0]["response"].update(created_at=None),
        lambda events: events.pop(0),
        lambda events: events.insert(1, events.pop()),
    ],
)
def test_other_events_are_different(change: Callable[[Events], object]) -> None:
    """Text, order, numbers, kinds of ids, names and times are compared."""
    wrong = deltas("One", " two")
    change(wrong)

    assert compare(RESPONSE, named(wrong), named(deltas("One", " two")))


def test_other_ids_are_different() -> None:
    """Token ids are compared."""
    assert compare(IDS, stream_of_ids([1], [3]), stream_of_ids([1], [2]))
    assert compare(IDS, stream_of_ids([1]), stream_of_ids([1], [2]))


def test_a_stream_that_is_an_error_is_distinguished() -> None:
    """An error as the only event is a late status; the errors are compared."""
    error = {"message": "no", "type": "BadRequestError", "param": None, "code": 400}
    late = Reply(200, "text/event-stream", f"data: {json.dumps({'error': error})}\n\ndata: [DONE]\n\n")
    early = Reply(400, "application/json", json.dumps({"error": error}))

    assert [found.path for found in compare(IDS, early, late)] == ["status"]
    assert compare(IDS, early, stream_of_ids([1]))
