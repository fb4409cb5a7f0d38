"""Converts OpenAI messages to the conversation that a chat template gets, as vLLM does for text."""

import json
import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tokenwire.coordinator.text.template.content_format import ContentFormat
from tokenwire.coordinator.text.template.content_parts import join_texts, parse_content
from tokenwire.errors import InvalidRequest, Malformed

log = logging.getLogger(__name__)

Message = dict[str, Any]

# Roles whose content may be null.
MAX_MESSAGES = 10_000
_MAY_BE_EMPTY = frozenset({"assistant", "function"})


def parse_messages(messages: object, content_format: ContentFormat) -> list[Message]:
    """Check messages and convert them to the template's form. Raises an InvalidRequest that names the message."""
    if not isinstance(messages, Sequence) or isinstance(messages, str | bytes):
        raise Malformed("messages must be a list.", param="messages")
    if len(messages) > MAX_MESSAGES:
        raise InvalidRequest(f"There are {len(messages)} messages, more than {MAX_MESSAGES}.", param="messages")
    return [_parse(message, f"messages[{i}]", content_format) for i, message in enumerate(messages)]


def developer_as_system(messages: Iterable[Message]) -> list[Message]:
    """Convert developer messages, which the template does not handle, to system messages, and merge these."""
    conversation = list(messages)
    if not any(message["role"] == "developer" for message in conversation):
        return conversation
    converted = [
        {name: value for name, value in message.items() if name != "tools"} | {"role": "system"}
        if message["role"] == "developer"
        else message
        for message in conversation
    ]
    system = [message for message in converted if message["role"] == "system"]
    if len(system) == 1 and converted[0] is system[0]:
        return converted
    # Many templates accept only a leading system message.
    texts = [text for message in system if (text := _text(message.get("content")))]
    rest = [message for message in converted if message["role"] != "system"]
    return [{"role": "system", "content": "\n\n".join(texts)}, *rest]


def _text(content: object) -> str:
    if isinstance(content, list):
        return join_texts(content)
    return content if isinstance(content, str) else ""


def _parse(message: object, where: str, content_format: ContentFormat) -> Message:
    if not isinstance(message, Mapping):
        raise Malformed(f"{where} must be an object.", param="messages")
    role = message.get("role")
    if not isinstance(role, str):
        raise Malformed(f"{where}.role is required and must be a string.", param="messages")
    if "content" in message and message["content"] is None and role not in _MAY_BE_EMPTY:
        raise Malformed(f"{where}.content must not be null for the role {role!r}.", param="messages")
    content = message.get("content")
    if content_format != "string" or not isinstance(content, str) or role == "system":
        content = parse_content(content, role, where, content_format)
    result: Message = {"role": role, "content": content}
    if role == "assistant":
        _add_assistant_fields(result, message, where)
    elif role == "tool" and "tool_call_id" in message:
        result["tool_call_id"] = message["tool_call_id"]
    for name in ("name", "task"):
        value = message.get(name)
        if value is not None and not isinstance(value, str):
            raise Malformed(f"{where}.{name} must be a string.", param="messages")
        if value is not None:
            result[name] = value
    if role == "developer":
        result["tools"] = message.get("tools")
    return result


def _add_assistant_fields(result: Message, message: Mapping[str, Any], where: str) -> None:
    calls = message.get("tool_calls")
    if calls is not None and not isinstance(calls, list | tuple):
        raise Malformed(f"{where}.tool_calls must be a list.", param="messages")
    if calls:
        result["tool_calls"] = [_tool_call(call, f"{where}.tool_calls[{i}]") for i, call in enumerate(calls)]
    reasoning = message.get("reasoning")
    if reasoning is None:
        reasoning = message.get("reasoning_content")
    if reasoning is not None:
        if not isinstance(reasoning, str):
            raise Malformed(f"{where}.reasoning must be a string.", param="messages")
        # Templates use either name.
        result["reasoning"] = result["reasoning_content"] = reasoning


def _tool_call(call: object, where: str) -> dict[str, Any]:
    if not isinstance(call, Mapping):
        raise Malformed(f"{where} must be an object.", param="messages")
    function = call.get("function")
    if call.get("type", "function") != "function" or not isinstance(function, Mapping):
        raise Malformed(f"{where} must be of type 'function', with a function.", param="messages")
    if not isinstance(function.get("name"), str):
        raise Malformed(f"{where}.function.name is required and must be a string.", param="messages")
    arguments = parse_arguments(function.get("arguments"), where)
    # In vLLM's order, because templates render these objects as JSON.
    return _ordered(call, ("id", "function", "type")) | {
        "function": _ordered({**function, "arguments": arguments}, ("arguments", "name"))
    }


def parse_arguments(value: object, where: str) -> dict[str, Any]:
    """Return arguments as an object. Invalid ones are from an earlier turn and must not end the conversation."""
    if isinstance(value, str) and value:
        try:
            value = json.loads(value)
        except ValueError:
            log.warning("%s has arguments that are not JSON; using none", where)
            return {}
    return dict(value) if isinstance(value, Mapping) else {}


def _ordered(fields: Mapping[str, Any], first: tuple[str, ...]) -> dict[str, Any]:
    return {name: fields[name] for name in first if name in fields} | dict(fields)
