"""Responses with a long array."""

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest
from starlette.responses import JSONResponse, Response

from tests.coordinator.fakes import request_context
from tests.turns import TurnsOfOthers
from tokenwire.coordinator.api.json_pieces import slices
from tokenwire.coordinator.api.long_response import long_response, with_long_lists
from tokenwire.coordinator.generation.context import CONTEXT, RequestContext


def scope() -> dict[str, Any]:
    """Return the scope of a request."""
    return {"type": "http", CONTEXT: request_context()}


async def _nothing() -> Any:
    raise AssertionError("nothing is received")


async def sent_messages(response: Response) -> tuple[dict[str, Any], list[bytes]]:
    """Return the start of a response, and its parts."""
    messages: list[Any] = []

    async def send(message: Any) -> None:
        messages.append(message)

    await response(scope(), _nothing, send)
    assert [message.get("more_body", False) for message in messages[1:]] == [True] * (len(messages) - 2) + [False]
    return messages[0], [message["body"] for message in messages[1:]]


@pytest.mark.parametrize("count", [0, 1, 3])
async def test_the_object_is_the_one_that_starlette_encodes(count: int) -> None:
    """With what comes before and after the array, and strings that look like it."""
    elements = [{"index": index, "text": 'é "choices":[] \n'} for index in range(count)]
    body = {"id": 'a "choices":[]', "choices": elements, "usage": {"choices": []}}

    start, parts = await sent_messages(long_response({**body, "choices": iter(elements)}, "choices"))

    assert b"".join(parts) == JSONResponse(body).body
    assert dict(start["headers"]) == dict(JSONResponse(body).raw_headers)


async def test_each_part_is_made_when_those_before_it_are_read() -> None:
    """Others have their turn, and a client that stands still has two parts made for it at most."""
    made: list[int] = []

    def elements() -> Iterator[dict[str, Any]]:
        for index in range(6):
            made.append(index)
            yield {"text": "x" * 100_000}

    response = long_response({"choices": elements()}, "choices")
    assert made == [0, 1]
    sent: list[Any] = []
    reads = asyncio.Semaphore(0)

    async def send(message: Any) -> None:
        sent.append(message)
        await reads.acquire()

    sending = asyncio.ensure_future(response(scope(), _nothing, send))
    for _ in range(3):
        reads.release()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    assert len(made) < 6
    for _ in range(10):
        reads.release()
    await sending

    parts = [message["body"] for message in sent[1:]]
    assert len(json.loads(b"".join(parts))["choices"]) == 6
    assert max(map(len, parts)) < 110_000
    assert "content-length" not in dict(response.headers)


async def test_a_client_that_is_gone_gets_nothing_more() -> None:
    """Nothing more is made for it, and its record says whether it was cut for reading too slowly."""
    made: list[int] = []

    def elements() -> Iterator[dict[str, Any]]:
        for index in range(6):
            made.append(index)
            yield {"text": "x" * 100_000}

    for was_cut, client in ((True, "client_slow"), (False, "client_disconnected")):
        made.clear()
        of_client = scope()
        context: RequestContext = of_client[CONTEXT]

        async def send(message: Any, connection: Any = context.connection, was_cut: bool = was_cut) -> None:
            connection.lost, connection.was_cut = True, was_cut

        await long_response({"choices": elements()}, "choices")(of_client, _nothing, send)

        assert made == [0, 1]
        assert context.record.client == client


@pytest.mark.parametrize("count", [0, 1, 20_000])
async def test_long_lists_are_encoded_in_slices_with_turns_for_others(count: int) -> None:
    """The object is the one that would be encoded at once; null is a list too."""
    values = list(range(count))
    turns = TurnsOfOthers()
    response = with_long_lists({"count": count}, {"tokens": slices(values), "texts": None})

    _, parts = await sent_messages(response)
    assert json.loads(b"".join(parts)) == {"count": count, "tokens": values, "texts": None}
    assert turns.count - 1 >= len(parts) - 1


async def test_an_object_may_have_nothing_but_long_lists() -> None:
    """Of any values."""
    _, parts = await sent_messages(with_long_lists({}, {"a": [[[1], [2, 3]]], "b": None, "c": []}))

    assert json.loads(b"".join(parts)) == {"a": [[1], [2, 3]], "b": None, "c": []}


async def test_elements_may_be_json_already() -> None:
    """Which is cheaper where they are large, and simple."""
    _, parts = await sent_messages(long_response({"data": iter([b'{"a":1}', {"a": 2}])}, "data"))

    assert b"".join(parts) == b'{"data":[{"a":1},{"a":2}]}'
