"""Converts the input of a Responses request, text or items, to chat messages. As in vLLM, items may be merged."""

from collections.abc import Mapping, Sequence
from typing import Any

from tokenwire.coordinator.api.responses.calls import custom_arguments, shell_arguments
from tokenwire.coordinator.api.responses.compaction_item import summary_message
from tokenwire.coordinator.api.responses.functions import SHELL_NAME
from tokenwire.coordinator.api.responses.tools import prompt_name
from tokenwire.coordinator.text.template.messages import ChatMessage
from tokenwire.errors import InvalidRequest

_ROLES = ("user", "assistant", "system", "developer")
_TEXT_FIELDS = {"input_text": "text", "output_text": "text", "text": "text", "refusal": "refusal"}
_UNFINISHED = ("in_progress", "incomplete")


def messages_of(
    instructions: str | None, given: str | Sequence[Mapping[str, Any]], before: Sequence[Mapping[str, Any]] = ()
) -> list[ChatMessage]:
    """Return chat messages of items, after those of stored responses. Raises an InvalidRequest that names the item."""
    messages: list[ChatMessage] = [{"role": "system", "content": instructions}] if instructions else []
    if not given and not isinstance(given, str):
        raise InvalidRequest("`input` must not be empty.", param="input")
    items = [*before, *([{"role": "user", "content": given}] if isinstance(given, str) else given)]
    for i, item in enumerate(items):
        _add(messages, item, f"input[{i - len(before)}]", goes_on=i > 0 and _is_cut(items[i - 1]))
    for message in messages:
        if message["role"] == "assistant" and "content" in message:
            message["content"] = "".join(message["content"])
    return messages


def ends_with_incomplete_reply(given: str | Sequence[Mapping[str, Any]]) -> bool:
    """Return whether the last item is an incomplete reply, which is to be continued."""
    if isinstance(given, str) or not given:
        return False
    return _is_cut(given[-1])


def _is_cut(item: Mapping[str, Any]) -> bool:
    """Return whether an item is an incomplete assistant message."""
    is_message = item.get("type", "message") == "message"
    return is_message and item.get("role") == "assistant" and item.get("status") in _UNFINISHED


def _add(messages: list[ChatMessage], item: Mapping[str, Any], where: str, goes_on: bool) -> None:
    match item.get("type", "message"):
        case "message":
            _add_message(messages, item, where, goes_on)
        case "function_call" | "custom_tool_call" | "local_shell_call":
            _assistant(messages).setdefault("tool_calls", []).append(_tool_call(item, where))
        case "function_call_output" | "custom_tool_call_output":
            messages.append(_output(item, "call_id", where))
        case "local_shell_call_output":
            # OpenAI's type of it has `id` in place of `call_id`.
            messages.append(_output(item, "call_id" if item.get("call_id") else "id", where))
        case "reasoning":
            _assistant(messages, "reasoning")["reasoning"] = _reasoning(item, where)
        case "compaction":
            messages.append(summary_message(item, where))
        case "item_reference":
            raise InvalidRequest(
                f"{where} is an item_reference, which is not supported: send the item itself.", param="input"
            )
        case "compaction_trigger":
            raise InvalidRequest(f"{where} is a compaction_trigger, which must be the last item.", param="input")
        case other:
            raise InvalidRequest(f"{where} is of the unsupported type {other!r}.", param="input")


def _add_message(messages: list[ChatMessage], item: Mapping[str, Any], where: str, goes_on: bool) -> None:
    role = item.get("role")
    if role not in _ROLES:
        raise InvalidRequest(f"{where}.role must be one of {', '.join(_ROLES)}, not {role!r}.", param="input")
    content = _content(item.get("content"), f"{where}.content")
    if role == "assistant":
        text = content if isinstance(content, str) else "".join(_reply_text(part, where) for part in content)
        if goes_on:  # merged with the incomplete item before it
            messages[-1]["content"].append(text)
        else:
            _assistant(messages, "content")["content"] = [text]  # joined at the end
    else:
        messages.append({"role": role, "content": content})


def _assistant(messages: list[ChatMessage], field: str | None = None) -> ChatMessage:
    """Return the last message if it is the assistant's and lacks the field, or else a new one."""
    last = messages[-1] if messages else None
    if last is None or last["role"] != "assistant" or field in last:
        last = {"role": "assistant"}
        messages.append(last)
    return last


def _tool_call(item: Mapping[str, Any], where: str) -> dict[str, Any]:
    function = {"name": _called_name(item, where), "arguments": _arguments(item, where)}
    return {"id": _string(item, "call_id", where), "function": function, "type": "function"}


def _called_name(item: Mapping[str, Any], where: str) -> str:
    if item["type"] == "local_shell_call":
        return SHELL_NAME
    name = _string(item, "name", where)
    return prompt_name(_string(item, "namespace", where), name) if item.get("namespace") else name


def _arguments(item: Mapping[str, Any], where: str) -> str:
    match item["type"]:
        case "custom_tool_call":
            return custom_arguments(_string(item, "input", where))
        case "local_shell_call":
            action = item.get("action")
            if not isinstance(action, Mapping) or not isinstance(action.get("command"), list):
                raise InvalidRequest(f"{where}.action.command is required and must be a list.", param="input")
            return shell_arguments(action)
    return _string(item, "arguments", where)


def _output(item: Mapping[str, Any], id_field: str, where: str) -> ChatMessage:
    content = _content(item.get("output"), f"{where}.output")
    return {"role": "tool", "content": content, "tool_call_id": _string(item, id_field, where)}


def _reasoning(item: Mapping[str, Any], where: str) -> str:
    if item.get("encrypted_content"):
        raise InvalidRequest(f"{where}.encrypted_content is not supported: send the content.", param="input")
    name = "content" if item.get("content") else "summary"
    parts = item.get(name) or ()
    if not isinstance(parts, list | tuple):
        raise InvalidRequest(f"{where}.{name} must be a list of parts.", param="input")
    return "".join(_string(part, "text", f"{where}.{name}[{i}]") for i, part in enumerate(parts))


def _content(content: object, where: str) -> str | list[dict[str, Any]]:
    if isinstance(content, str):
        return content
    if not isinstance(content, list | tuple):
        raise InvalidRequest(f"{where} must be a string or a list of parts.", param="input")
    return [_part(part, f"{where}[{i}]") for i, part in enumerate(content)]


def _part(part: object, where: str) -> dict[str, Any]:
    if isinstance(part, Mapping) and part.get("type") == "input_image":
        if part.get("file_id") is not None:
            raise InvalidRequest(f"{where}.file_id is not supported: send the picture's URL.", param="input")
        return {"type": "image_url", "image_url": {"url": _string(part, "image_url", where)}}
    return {"type": "text", "text": _text(part, where)}


def _reply_text(part: Mapping[str, Any], where: str) -> str:
    if part["type"] != "text":
        raise InvalidRequest(f"{where} is the assistant's, and cannot have pictures.", param="input")
    return str(part["text"])


def _text(part: object, where: str) -> str:
    kind = part.get("type") if isinstance(part, Mapping) else None
    if not isinstance(kind, str) or kind not in _TEXT_FIELDS:
        raise InvalidRequest(
            f"{where} is of type {kind!r}, but this server takes text and pictures only.", param="input"
        )
    return _string(part, _TEXT_FIELDS[kind], where)


def _string(item: object, name: str, where: str) -> str:
    value = item.get(name) if isinstance(item, Mapping) else None
    if not isinstance(value, str):
        raise InvalidRequest(f"{where}.{name} is required and must be a string.", param="input")
    return value
