"""Arguments of tool calls are limited as bodies are, wherever a body has them; long ones of few elements are not."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from tokenwire.coordinator.api.body_shape import ShapeLimits
from tokenwire.coordinator.api.call_arguments import check_arguments
from tokenwire.errors import InvalidRequest

LISTS = '{"a":[' + "[]," * 200_000 + "[]]}"
INTEGERS = '{"a":[' + "7," * 300_000 + "7]}"
FILE = json.dumps({"path": "a.json", "content": '{"a": [1, 2], "b": "c\\\\"},\n' * 400_000})
FEW = ShapeLimits(parts=10, values=10, unchecked_bytes=0)


def called_with(*arguments: object) -> dict[str, Any]:
    """An assistant message of OpenAI's API with one call for each of the arguments."""
    calls = [{"type": "function", "function": {"name": "f", "arguments": each}} for each in arguments]
    return {"role": "assistant", "content": None, "tool_calls": calls}


USER = {"role": "user", "content": "hi"}
BODIES: dict[str, Callable[[Any], dict[str, Any]]] = {
    "messages[1].tool_calls[0].function.arguments": lambda given: {"messages": [USER, called_with(given)]},
    "messages[0][1].tool_calls[0].function.arguments": lambda given: {"messages": [[USER, called_with(given)]]},
    "messages[0].content[0].input": lambda given: {"messages": [{"content": [{"type": "tool_use", "input": given}]}]},
    "input[1].arguments": lambda given: {"input": [USER, {"type": "function_call", "arguments": given}]},
}
"""Bodies of all APIs, by the place of the arguments in them."""


@pytest.mark.parametrize("text", [LISTS, INTEGERS, json.loads(LISTS)], ids=["lists", "integers", "parsed"])
@pytest.mark.parametrize("where", BODIES)
async def test_arguments_of_very_many_elements_are_rejected(where: str, text: object) -> None:
    """Before their string is parsed; the error names the field."""
    with pytest.raises(InvalidRequest, match=r"have (at least )?\d+ (strings.*|values), more than \d+\.") as raised:
        await check_arguments(BODIES[where](text))
    assert where in raised.value.message
    assert raised.value.param == where.partition("[")[0]


async def test_arguments_of_many_calls_count_together() -> None:
    """Also if each of them is as short as ordinary ones, or has an odd number of quotes that would hide the next."""
    few = '{"a":[[],[],[],[]]}'
    await check_arguments({"messages": [called_with(few)]}, FEW)
    for arguments in ([few, few], ['"', few, few]):
        with pytest.raises(InvalidRequest, match="more than 10"):
            await check_arguments({"messages": [called_with(*arguments)]}, FEW)


@pytest.mark.parametrize("where", BODIES)
async def test_a_long_text_in_arguments_is_one_element(where: str) -> None:
    """As of a call that writes a file of some megabytes, which may be JSON itself."""
    await check_arguments(BODIES[where](FILE))


@pytest.mark.parametrize(
    "body",
    [
        None,
        [],
        {"input": [1] * 1000},
        {"input": [[1, 2], [3]]},
        {"input": "x"},
        {"messages": [{"tool_calls": [{"function": None}, {"function": {}}, None], "content": ["a", {"text": "b"}]}]},
        {"messages": {"a": 1}},
        {"messages": [called_with(None, 7)]},
    ],
)
async def test_bodies_without_arguments_pass(body: object) -> None:
    """Whatever else they have: their models describe what is wrong."""
    await check_arguments(body, FEW)


async def test_deeply_nested_arguments_are_counted() -> None:
    """Beyond the levels that the fastest writer of JSON has."""
    deep: list[Any] = []
    for _ in range(400):
        deep = [deep]
    with pytest.raises(InvalidRequest, match="have 401 strings, objects, lists and fields, more than 10"):
        await check_arguments({"messages": [called_with(deep)]}, FEW)
