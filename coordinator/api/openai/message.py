"""Parts of messages as OpenAI's objects."""

from collections.abc import Sequence
from typing import Any

from tokenwire.coordinator.parsing.message import MessageDelta, ParsedMessage, ToolCallDelta, merge_all
from tokenwire.coordinator.parsing.rules import ParsedToolCall


def tool_call_object(call: ParsedToolCall) -> dict[str, Any]:
    """Return a complete tool call."""
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}


def message_object(role: str, content: str | None, message: ParsedMessage) -> dict[str, Any]:
    """Return a complete message. content: that of the message, with what it continues."""
    shown: dict[str, Any] = {
        "role": role,
        "content": content,
        "refusal": None,
        "annotations": None,
        "audio": None,
        "function_call": None,
        "reasoning": message.reasoning,
    }
    if message.tool_calls:
        shown["tool_calls"] = [tool_call_object(tool_call) for tool_call in message.tool_calls]
    return shown


def delta_object(delta: MessageDelta) -> dict[str, Any]:
    """Return a delta with vLLM's `reasoning`; parts without news are omitted."""
    shown: dict[str, Any] = {}
    if delta.content is not None:
        shown["content"] = delta.content
    if delta.reasoning is not None:
        shown["reasoning"] = delta.reasoning
    if delta.tool_calls:
        shown["tool_calls"] = [_tool_call_delta(call) for call in delta.tool_calls]
    return shown


def joined_message(deltas: Sequence[MessageDelta]) -> dict[str, Any]:
    """Return the message as a client assembles it from deltas."""
    whole = merge_all(deltas)
    functions = [{"name": call.name or "", "arguments": call.arguments or ""} for call in whole.tool_calls]
    return {
        "role": "assistant",
        "content": whole.content or "",
        "reasoning": whole.reasoning or "",
        "tool_calls": [{"type": "function", "function": function} for function in functions],
    }


def _tool_call_delta(call: ToolCallDelta) -> dict[str, Any]:
    shown: dict[str, Any] = {} if call.id is None else {"id": call.id, "type": "function"}
    shown["index"] = call.index
    function = {"name": call.name, "arguments": call.arguments}
    shown["function"] = {name: value for name, value in function.items() if value is not None}
    return shown
