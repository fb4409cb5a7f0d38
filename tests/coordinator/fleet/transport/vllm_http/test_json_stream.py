"""Long responses of JSON are read as Python reads them, element by element, however they are cut."""

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.turns import TurnsOfOthers
from tokenwire.coordinator.fleet.transport.vllm_http.json_stream import LongParts, read_json

TEXTS = st.text(st.characters(codec="utf-8"))
LEAVES = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXTS
TREES = st.recursive(LEAVES, lambda inner: st.lists(inner) | st.dictionaries(TEXTS, inner), max_leaves=10)
RESPONSES = st.fixed_dictionaries(
    {"id": TREES, "scores": st.lists(TREES), "choices": st.lists(st.fixed_dictionaries({"ids": st.lists(TREES)}))}
)


async def pieces_of_body(body: bytes, size: int) -> AsyncIterator[bytes]:
    """Yield a body in pieces of this size."""
    for start in range(0, len(body), size):
        yield body[start : start + size]


async def read_back(body: bytes, parts: LongParts | None = None, size: int = 7) -> Any:
    """Read a body that comes in such pieces."""
    return await read_json(pieces_of_body(body, size), parts or {})


@given(response=RESPONSES, size=st.integers(1, 40), indent=st.none() | st.just(1), ascii_only=st.booleans())
async def test_a_response_is_read_however_it_is_cut(
    response: dict[str, Any], size: int, indent: int | None, ascii_only: bool
) -> None:
    """Within numbers, escapes and characters too; elements of long lists are handed on, in their order."""
    scores: list[Any] = []
    ids: list[Any] = []
    body = json.dumps(response, indent=indent, ensure_ascii=ascii_only).encode()

    found = await read_back(body, {"scores": scores.append, "choices": {"ids": ids.append}}, size)

    assert found == {"id": response["id"], "scores": [], "choices": [{"ids": []} for _ in response["choices"]]}
    assert scores == response["scores"]
    assert ids == [each for choice in response["choices"] for each in choice["ids"]]


@given(value=TREES)
async def test_without_long_parts_it_is_the_same_value(value: Any) -> None:
    """Of any kind."""
    assert await read_back(json.dumps(value).encode()) == value


@pytest.mark.parametrize("value", [None, 5, {"a": [1]}])
async def test_a_long_part_that_is_no_list_is_kept(value: Any) -> None:
    """Servers have null for what they have nothing of."""
    taken: list[Any] = []

    assert await read_back(json.dumps({"a": value, "b": value}).encode(), {"a": taken.append, "b": {}}) == {
        "a": value,
        "b": value,
    }
    assert taken == []


@pytest.mark.parametrize(
    "body",
    [
        "",
        "{",
        "[1",
        '{"a": [1, 2',
        '{"a": [1,]}',
        '{"a" 1}',
        "{1: 2}",
        '{"a": 1,}',
        "{}{}",
        "[] x",
        "<html>",
        '{"a": [1}',
    ],
)
async def test_what_is_no_json_is_refused(body: str) -> None:
    """Wherever it breaks off."""
    with pytest.raises(ValueError, match=r"Expecting|Extra|delimiter"):
        await read_back(body.encode(), {"a": lambda element: None})


async def test_others_have_a_turn_after_each_piece() -> None:
    """And one list is not held whole."""
    body = json.dumps({"scores": list(range(1000))}).encode()
    most = 0
    turns = TurnsOfOthers()

    def take(element: int) -> None:
        nonlocal most
        most = element

    assert await read_back(body, {"scores": take}, size=100) == {"scores": []}
    assert most == 999
    assert turns.count >= len(body) // 100


async def test_a_long_value_is_not_read_anew_with_every_piece() -> None:
    """Each time twice as much has come, so that all attempts take no longer than the last two."""
    text = "x" * 100_000
    turns = TurnsOfOthers()

    assert await read_back(json.dumps(text).encode(), size=10) == text
    assert turns.count < 40
