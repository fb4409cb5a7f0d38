"""Limits the elements of tool calls' arguments: they are parsed for the prompt, more than once, also from strings."""

import json
from collections.abc import Iterator
from typing import Any, TypeVar

from tokenwire.coordinator.api.body_shape import ElementCount, ShapeLimits
from tokenwire.coordinator.api.json_text import json_bytes

Element = TypeVar("Element")

_LIMITS = ShapeLimits(parts=128 * 1024, values=256 * 1024)
"""Less than a body may have: parsers of whole bodies are faster, and do it once."""


async def check_arguments(content: object, limits: ShapeLimits = _LIMITS) -> None:
    """Check the arguments in a parsed body together. Raises InvalidRequest, which names the field."""
    found = [(where, _encoded(value)) for where, value in _arguments_in(content)]
    if sum(len(text) for _, text in found) <= limits.unchecked_bytes:
        return
    count = ElementCount(limits)
    for where, text in found:
        await count.add(text, f"The arguments of tool calls up to {where} have", where.partition("[")[0])


def _encoded(value: Any) -> bytes:
    if isinstance(value, str):
        return value.encode()
    try:
        return json_bytes(value)
    except ValueError:  # nested more deeply than that writes
        return json.dumps(value).encode()


def _arguments_in(content: object) -> Iterator[tuple[str, object]]:
    if not isinstance(content, dict):
        return
    messages = content.get("messages")
    yield from _in_messages(messages, "messages")
    for i, conversation in _all_of(list, messages):
        yield from _in_messages(conversation, f"messages[{i}]")
    for i, item in _all_of(dict, content.get("input")):
        if "arguments" in item:
            yield f"input[{i}].arguments", item["arguments"]


def _in_messages(messages: object, where: str) -> Iterator[tuple[str, object]]:
    """Yield arguments in messages of OpenAI's form and of Anthropic's."""
    for i, message in _all_of(dict, messages):
        for j, call in _all_of(dict, message.get("tool_calls")):
            function = call.get("function")
            if isinstance(function, dict) and "arguments" in function:
                yield f"{where}[{i}].tool_calls[{j}].function.arguments", function["arguments"]
        for j, block in _all_of(dict, message.get("content")):
            if "input" in block:
                yield f"{where}[{i}].content[{j}].input", block["input"]


def _all_of(kind: type[Element], values: Any) -> Iterator[tuple[int, Element]]:
    """Yield the elements of a list; none if its first is of another kind, as of the many ids of a prompt."""
    if isinstance(values, list) and values and isinstance(values[0], kind):
        yield from ((i, value) for i, value in enumerate(values) if isinstance(value, kind))
