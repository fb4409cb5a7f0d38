"""JSON is parsed as by Python, in one go or in turns, and has only text that UTF-8 encodes."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenwire.coordinator.api.json_body import parse_json, parse_json_in_turns
from tokenwire.errors import Malformed

TEXT = st.text(st.characters(codec="utf-8"))
SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXT
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner) | st.dictionaries(TEXT, inner), max_leaves=20)


class Turns:
    """Counts turns, of which one is had at a time."""

    def __init__(self) -> None:
        self.taken = 0
        self._is_taken = False

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Have one."""
        assert not self._is_taken
        self.taken += 1
        self._is_taken = True
        yield
        self._is_taken = False


@given(value=VALUES, ascii_only=st.booleans())
def test_text_is_parsed_as_by_python(value: Any, ascii_only: bool) -> None:
    """With escapes, including surrogate pairs, or without."""
    assert parse_json(json.dumps(value, ensure_ascii=ascii_only).encode()) == value


@pytest.mark.parametrize(
    "body",
    ['{"a": 1e999, "b": -Infinity}', "\ufeff{}", '{"a":' + "[" * 500 + "]" * 500 + "}", '{"a": "😀\\ud83d\\ude00"}'],
)
def test_json_that_python_accepts_is_accepted(body: str) -> None:
    """Beyond what the faster parser accepts."""
    assert parse_json(body.encode()) == json.loads(body.encode())


@pytest.mark.parametrize(
    ("body", "field"),
    [
        (rb'{"ok": 1, "model": "\ud800"}', "model"),
        (rb'{"messages": [{"role": "user", "content": ["a\udfffb"]}], "model": "x"}', "messages"),
        (rb'{"metadata": {"\udc00": 1}}', "metadata"),
        (b'{"user": "\xed\xa0\x80"}', "user"),
        (rb'{"\ude00\ud83d": 1}', r"\ude00\ud83d"),
        (rb'["\ud800"]', "body"),
    ],
)
def test_an_unpaired_surrogate_is_rejected(body: bytes, field: str) -> None:
    """In any place and any spelling."""
    with pytest.raises(Malformed, match="surrogate") as caught:
        parse_json(body)

    assert caught.value.param == field


@pytest.mark.parametrize(("body", "turns"), [('{"a": [1, 2]}', 1), ('{"a":' + "[" * 500 + "]" * 500 + "}", 3)])
async def test_a_large_body_has_a_turn_for_each_parser(body: str, turns: int) -> None:
    """What the faster one rejects takes long: others have their turn in between."""
    taken = Turns()

    assert await parse_json_in_turns(body.encode(), taken.turn) == json.loads(body)

    assert taken.taken == turns


async def test_in_turns_the_same_is_rejected() -> None:
    """Text without an encoding, and what is no JSON, with the position."""
    with pytest.raises(Malformed, match="surrogate"):
        await parse_json_in_turns(rb'{"model": "\ud800"}', Turns().turn)
    with pytest.raises(json.JSONDecodeError) as caught:
        await parse_json_in_turns(b'{"model": x}', Turns().turn)
    assert caught.value.pos == 10
