"""Converts messages of Anthropic's content blocks to chat messages, by vLLM's rules: text and pictures."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from tokenwire.coordinator.text.template.messages import ChatMessage, without_billing_header
from tokenwire.errors import InvalidRequest

Blocks = str | Sequence[Mapping[str, Any]]


def system_text(system: Blocks | None, where: str) -> str:
    """Return a system prompt's text. Raises an InvalidRequest that names the block."""
    if system is None or isinstance(system, str):
        return without_billing_header(system or "")
    return "".join(without_billing_header(_text(block, f"{where}[{i}]")) for i, block in enumerate(system))


def chat_messages(
    system: Blocks | None, messages: Sequence[Mapping[str, Any]], system_first: bool = False
) -> list[ChatMessage]:
    """Return chat messages. Raises an InvalidRequest that names the block.

    system_first: move system messages within the conversation to its front.
    """
    first = [system_text(system, "system")]
    chat: list[ChatMessage] = []
    for i, message in enumerate(messages):
        where = f"messages[{i}]"
        role, content = message.get("role"), message.get("content")
        if not isinstance(content, str | list):
            raise InvalidRequest(f"{where}.content must be a string or a list of blocks.", param="messages")
        if role == "system":
            text = system_text(content, f"{where}.content")
            if system_first:
                first.append(text)
            elif text:
                chat.append({"role": "system", "content": text})
        elif role in ("user", "assistant"):
            chat += _turn(role, content, f"{where}.content")
        else:
            raise InvalidRequest(f"{where}.role must be user, assistant or system, not {role!r}.", param="messages")
    text = "".join(first)
    return [{"role": "system", "content": text}, *chat] if text else chat


def ends_with_assistant_text(messages: Sequence[ChatMessage]) -> bool:
    """Return whether chat messages end with assistant text, which the reply continues."""
    last = messages[-1] if messages else {}
    return last.get("role") == "assistant" and bool(last.get("content")) and "tool_calls" not in last


def _turn(role: str, content: Blocks, where: str) -> list[ChatMessage]:
    """Convert one message. Tool results become messages of their own, before the user's."""
    if isinstance(content, str):
        return [{"role": role, "content": content}]
    turn = _Turn()
    for i, block in enumerate(content):
        turn.add(role, block, f"{where}[{i}]")
    message: ChatMessage = {"role": role}
    if turn.reasoning:
        message["reasoning"] = "".join(turn.reasoning)
    if turn.calls:
        message["tool_calls"] = turn.calls
    if len(turn.parts) == 1 and turn.parts[0]["type"] == "text":
        message["content"] = turn.parts[0]["text"]
    elif turn.parts:
        message["content"] = turn.parts
    return turn.results if role == "user" and not turn.parts else [*turn.results, message]


class _Turn:
    """The parts of one message."""

    def __init__(self) -> None:
        self.parts: list[dict[str, Any]] = []
        self.calls: list[dict[str, Any]] = []
        self.reasoning: list[str] = []
        self.results: list[ChatMessage] = []

    def add(self, role: str, block: object, where: str) -> None:
        """Add one block. Raises InvalidRequest."""
        kind = block.get("type") if isinstance(block, Mapping) else None
        match role, kind:
            case _, "text":
                text = _text(block, where)
                if text:
                    self.parts.append({"type": "text", "text": text})
            case "user", "image":
                self.parts.append(_picture(block, where))
            case "assistant", "thinking":
                self.reasoning.append(_string(block, "thinking", where))
            case "assistant", "redacted_thinking":
                pass  # unreadable here, and clients send back everything that they received
            case "assistant", "tool_use":
                self.calls.append(_tool_call(block, where))
            case "user", "tool_result":
                self.results += _tool_result(block, where)
            case _:
                raise _rejected(kind, where, f"in a message of the {role}'s")


def _tool_call(block: object, where: str) -> dict[str, Any]:
    assert isinstance(block, Mapping)
    arguments = block.get("input")
    if not isinstance(arguments, Mapping):
        raise InvalidRequest(f"{where}.input is required and must be an object.", param="messages")
    function = {"name": _string(block, "name", where), "arguments": json.dumps(arguments)}
    return {"id": _string(block, "id", where), "type": "function", "function": function}


def _tool_result(block: object, where: str) -> list[ChatMessage]:
    """Convert a result. Its pictures are in a message of the user's behind it, as in vLLM."""
    assert isinstance(block, Mapping)
    content = block.get("content") or ""
    pictures: list[dict[str, Any]] = []
    if isinstance(content, list):
        references = [part for part in content if isinstance(part, Mapping) and part.get("type") == "tool_reference"]
        if references and len(references) == len(content):
            content = [{"type": "tool_reference", "name": part.get("tool_name")} for part in references]
        else:
            texts = []
            for i, part in enumerate(content):
                if isinstance(part, Mapping) and part.get("type") == "image":
                    pictures.append(_picture(part, f"{where}.content[{i}]"))
                else:
                    texts.append(_text(part, f"{where}.content[{i}]"))
            content = "\n".join(texts)
    elif not isinstance(content, str):
        raise InvalidRequest(f"{where}.content must be a string or a list of blocks.", param="messages")
    result = {"role": "tool", "tool_call_id": _string(block, "tool_use_id", where), "content": content}
    return [result, {"role": "user", "content": pictures}] if pictures else [result]


def _picture(block: object, where: str) -> dict[str, Any]:
    source = block.get("source") if isinstance(block, Mapping) else None
    match source.get("type") if isinstance(source, Mapping) else None:
        case "url":
            url = _string(source, "url", f"{where}.source")
        case "base64":
            kind = _string(source, "media_type", f"{where}.source")
            url = f"data:{kind};base64,{_string(source, 'data', f'{where}.source')}"
        case other:
            raise InvalidRequest(
                f"{where} is of type 'image', whose source must be of type base64 or url, not {other!r}.",
                param="messages",
            )
    return {"type": "image_url", "image_url": {"url": url}}


def _text(block: object, where: str) -> str:
    kind = block.get("type") if isinstance(block, Mapping) else None
    if kind != "text":
        raise _rejected(kind, where, "here")
    return _string(block, "text", where)


def _string(block: object, name: str, where: str) -> str:
    value = block.get(name) if isinstance(block, Mapping) else None
    if not isinstance(value, str):
        raise InvalidRequest(f"{where}.{name} is required and must be a string.", param="messages")
    return value


def _rejected(kind: object, where: str, place: str) -> InvalidRequest:
    if kind == "document":
        message = f"{where} is of type {kind!r}, but this server takes text and pictures only."
        return InvalidRequest(message, param="messages")
    return InvalidRequest(f"{where} is of type {kind!r}, which is not supported {place}.", param="messages")
