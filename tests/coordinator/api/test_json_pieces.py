"""JSON in pieces."""

import json

from tokenwire.coordinator.api.json_pieces import array_in_parts, array_of, in_turns, object_pieces


async def test_pieces_may_be_anywhere_in_an_object() -> None:
    """First, last and alone, in objects of an array, also where there is nothing."""
    numbers = array_in_parts([[1, 2], [], [3]])
    body = {"first": numbers, "a": 1, "b": None, "in": array_of([{"x": numbers}, {}, {"y": 2}]), "last": numbers}

    assert json.loads(b"".join(object_pieces(body))) == {
        **{"first": [1, 2, 3], "a": 1, "b": None, "in": [{"x": [1, 2, 3]}, {}, {"y": 2}]},
        "last": [1, 2, 3],
    }
    assert b"".join(object_pieces({})) == b"{}"
    assert b"".join(object_pieces({"a": array_of([])})) == b'{"a":[]}'
    assert await in_turns(object_pieces({"a": array_in_parts([])})) == b'{"a":[]}'
