"""Responses with a long array."""

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest
from starlette.responses import JSONResponse

from tokenwire.coordinator.api.long_response import LongResponse, long_response, slices, with_long_lists


async def sent_messages(response: LongResponse) -> tuple[dict[str, Any], list[bytes]]:
    """Return the start of a response, and its parts."""
    messages: list[Any] = []

    async def send(message: Any) -> None:
        messages.append(message)

    async def receive() -> Any:
        raise AssertionError("nothing is received")

    await response({"type": "http"}, receive, send)
    assert [message.get("more_body") for message in messages[1:]] == [True] * (len(messages) - 2) + [False]
    return messages[0], [message["body"] for message in messages[1:]]


@pytest.mark.parametrize("count", [0, 1, 3])
async def test_the_object_is_the_one_that_starlette_encodes(count: int) -> None:
    """With what comes before and after the array, and strings that look like it."""
    elements = [{"index": index, "text": 'é "choices":[] \n'} for index in range(count)]
    body = {"id": 'a "choices":[]', "choices": elements, "usage": {"choices": []}}

    start, parts = await sent_messages(await long_response({**body, "choices": iter(elements)}, "choices"))

    assert b"".join(parts) == JSONResponse(body).body
    assert dict(start["headers"]) == dict(JSONResponse(body).raw_headers)


async def test_others_have_their_turn_between_elements() -> None:
    """An element is made when those before it are encoded."""
    made: list[int] = []

    def elements() -> Iterator[dict[str, Any]]:
        for index in range(4):
            made.append(index)
            yield {"text": "x" * 100_000}

    encoding = asyncio.ensure_future(long_response({"choices": elements()}, "choices"))
    await asyncio.sleep(0)
    assert made == [0]

    _, parts = await sent_messages(await encoding)
    assert len(json.loads(b"".join(parts))["choices"]) == 4
    assert max(map(len, parts)) < 110_000


@pytest.mark.parametrize("count", [0, 1, 20_000])
async def test_long_lists_are_encoded_in_slices_with_turns_for_others(count: int) -> None:
    """The object is the one that would be encoded at once; null is a list too."""
    turns = 0

    def count_turns() -> None:
        nonlocal turns
        turns += 1
        asyncio.get_running_loop().call_soon(count_turns)

    values = list(range(count))
    count_turns()
    response = await with_long_lists({"count": count}, {"tokens": slices(values), "texts": None})

    _, parts = await sent_messages(response)
    assert json.loads(b"".join(parts)) == {"count": count, "tokens": values, "texts": None}
    assert turns - 1 >= count // 8192


async def test_an_object_may_have_nothing_but_long_lists() -> None:
    """Of any values."""
    _, parts = await sent_messages(await with_long_lists({}, {"a": [[[1], [2, 3]]], "b": None, "c": []}))

    assert json.loads(b"".join(parts)) == {"a": [[1], [2, 3]], "b": None, "c": []}


async def test_elements_may_be_json_already() -> None:
    """Which is cheaper where they are large, and simple."""
    _, parts = await sent_messages(await long_response({"data": iter([b'{"a":1}', {"a": 2}])}, "data"))

    assert b"".join(parts) == b'{"data":[{"a":1},{"a":2}]}'
