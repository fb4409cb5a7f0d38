"""Bodies with too many elements are rejected unparsed, in any spelling."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.coordinator.api.test_json_body import VALUES
from tokenwire.coordinator.api.body_shape import ShapeLimits, check_shape
from tokenwire.coordinator.http.backpressure import BodyBudget, BodySettings
from tokenwire.errors import InvalidRequest

TRICKY = st.text(st.sampled_from('a"\\,:{[]}\n'))
NESTED = st.recursive(VALUES | TRICKY, lambda inner: st.lists(inner) | st.dictionaries(TRICKY, inner), max_leaves=20)


def parts_of(value: Any) -> int:
    """Count strings, objects, lists, and fields twice."""
    if isinstance(value, dict):
        return 1 + sum(2 + parts_of(each) for each in value.values())
    return 1 + sum(map(parts_of, value)) if isinstance(value, list) else int(isinstance(value, str))


def commas_of(value: Any) -> int:
    """Count separators of values."""
    inner = list(value.values()) if isinstance(value, dict) else value if isinstance(value, list) else []
    return max(0, len(inner) - 1) + sum(map(commas_of, inner))


async def is_rejected(body: bytes, limits: ShapeLimits) -> bool:
    """Return whether a body has too many elements."""
    try:
        await check_shape(body, limits=limits)
    except InvalidRequest:
        return True
    return False


@given(value=NESTED, piece=st.integers(1, 40))
async def test_counts_equal_the_parsers(value: Any, piece: int) -> None:
    """Contents of strings do not count, wherever a long body is split."""
    body = json.dumps({"a": value}).encode()
    parts, commas = parts_of({"a": value}), commas_of(value)

    assert not await is_rejected(body, ShapeLimits(parts, commas + 1, 0, piece))
    assert await is_rejected(body, ShapeLimits(parts - 1, commas + 1, 0, piece))
    assert not commas or await is_rejected(body, ShapeLimits(parts, commas, 0, piece))


@pytest.mark.parametrize(
    "written",
    [
        lambda: '{"logit_bias":{' + '"1234567":1,' * 1_500_000 + '"1":1}}',
        lambda: '{"prompt":[' + "[1]," * 800_000 + "[1]]}",
        lambda: '{"stop":[' + '"a",' * 800_000 + '"a"]}',
        lambda: '{"prompt":[' + "1," * 5_000_000 + "1]}",
        lambda: '{"prompt":[' + "{}," * 400_000 + "{}" * 400_000,
    ],
)
async def test_millions_of_elements_are_rejected(written: Callable[[], str]) -> None:
    """Each of these blocked every stream for a second or more."""
    with pytest.raises(InvalidRequest, match=r"\d+ (strings, .*|values), more than \d+\."):
        await check_shape(written().encode())


@pytest.mark.parametrize(
    "written",
    [
        lambda: json.dumps({"prompt": '{"a": [1, 2], "b": "c\\\\"}, ' * 1_000_000}),
        lambda: '{"prompt":[' + "1234567," * 3_000_000 + "1]}",
        lambda: json.dumps({"messages": [{"role": "user", "content": [{"type": "text", "text": "x" * 900}]}] * 10_000}),
    ],
)
async def test_large_bodies_of_clients_are_accepted(written: Callable[[], str]) -> None:
    """A text of 30 MB, millions of ids, and the maximum number of messages."""
    await check_shape(written().encode())


async def test_a_long_body_in_another_encoding_is_rejected() -> None:
    """It could hide elements; the standard requires UTF-8."""
    body = json.dumps({"prompt": "a" * 600_000})
    with pytest.raises(InvalidRequest, match="UTF-8"):
        await check_shape(body.encode("utf-16"))
    await check_shape(body[:1000].encode("utf-16"))


async def test_pieces_of_bodies_that_come_at_once_take_turns() -> None:
    """Thirty stored conversations that were continued at once blocked every stream for a second."""
    budget, cycles = BodyBudget(BodySettings()), 0

    async def count() -> None:
        nonlocal cycles
        while True:
            cycles += 1
            await asyncio.sleep(0)

    counting = asyncio.create_task(count())
    text = b'"' + b"x" * 2**16 + b'"'
    limits = ShapeLimits(piece_bytes=2**12)
    await asyncio.gather(*(check_shape(text, text, limits=limits, give_way=budget.give_way) for _ in range(8)))
    counting.cancel()

    assert cycles >= 8 * 2 * 2**16 // 2**12
