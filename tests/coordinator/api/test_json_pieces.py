"""JSON in pieces."""

import json

from tokenwire.coordinator.api.json_pieces import (
    array_in_parts,
    array_of,
    in_parts,
    in_turns,
    object_pieces,
    text_in_parts,
)


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


def test_a_text_is_the_one_that_would_be_encoded_at_once() -> None:
    """Also where it is cut next to what JSON escapes, or within what UTF-16 writes as a pair."""
    for text in ("", 'a"', '\n"é\\😀' * 50_000):
        pieces = list(text_in_parts(text))
        assert json.loads(b"".join(pieces)) == text
        assert max(map(len, pieces)) < 300_000


def test_a_long_piece_comes_in_parts() -> None:
    """Since a connection keeps a part until it is read; shorter ones come together."""
    pieces = [b"a" * 10, b"b" * 1_000_000, b"", b"c" * 10]

    parts = list(in_parts(pieces))

    assert b"".join(parts) == b"".join(pieces)
    assert max(map(len, parts)) < 300_000
    assert list(in_parts([b"a", b"b"])) == [b"ab"]
