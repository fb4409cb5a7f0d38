"""Elements of Anthropic's full and streamed responses: content blocks, stop reason, usage."""

import json
import uuid
from typing import Any

from pydantic_core import from_json

from tokenwire.coordinator.api.anthropic.blocks import chat_messages
from tokenwire.coordinator.api.json_text import replace_unpaired
from tokenwire.coordinator.api.message_parts import MessagePart
from tokenwire.coordinator.text.template.messages import ChatMessage
from tokenwire.coordinator.types import Finish, Usage


def new_signature() -> str:
    """Return a placeholder for the signature of a thinking block: clients require one, and nothing checks it."""
    return uuid.uuid4().hex


def opened_block(part: MessagePart) -> dict[str, Any]:
    """Return a content block at its start."""
    match part.kind:
        case "text":
            return {"type": "text", "text": ""}
        case "reasoning":
            return {"type": "thinking", "thinking": "", "signature": ""}
        case "tool_call":
            return {"type": "tool_use", "id": part.call_id, "name": part.name, "input": {}}


def full_block(part: MessagePart) -> dict[str, Any]:
    """Return a complete or truncated content block."""
    match part.kind:
        case "text":
            return {"type": "text", "text": part.text}
        case "reasoning":
            return {"type": "thinking", "thinking": part.text, "signature": new_signature()}
        case "tool_call":
            return {"type": "tool_use", "id": part.call_id, "name": part.name, "input": _input(part.text)}


def _input(arguments: str) -> dict[str, Any]:
    """Return a call's arguments; of truncated ones the complete part, as Anthropic's clients parse streams.

    Models write more than JSON has: `NaN` and numbers that are too large are null.
    """
    try:
        value = from_json(replace_unpaired(arguments) or "{}", allow_partial=True)
    except ValueError:
        return {}
    return json.loads(json.dumps(value), parse_constant=lambda _: None) if isinstance(value, dict) else {}


def as_messages(parts: list[MessagePart]) -> list[ChatMessage]:
    """Return the chat messages that parts become when a client sends their blocks back."""
    return chat_messages(None, [{"role": "assistant", "content": [full_block(part) for part in parts]}])


def stop(parts: list[MessagePart], finish: Finish) -> dict[str, Any]:
    """Return the stop reason and the stop sequence, as vLLM does: a truncated call must not be run."""
    calls = [part for part in parts if part.kind == "tool_call"]
    if finish.reason == "length":
        return {"stop_reason": "max_tokens", "stop_sequence": None}
    if calls and _is_json(calls[-1].text):
        return {"stop_reason": "tool_use", "stop_sequence": None}
    if isinstance(finish.stop_reason, str):
        return {"stop_reason": "stop_sequence", "stop_sequence": finish.stop_reason}
    return {"stop_reason": "tool_use" if calls else "end_turn", "stop_sequence": None}


def _is_json(text: str) -> bool:
    try:
        json.loads(text or "{}")
    except (ValueError, RecursionError):
        return False
    return True


def shown_usage(usage: Usage, shows_cached: bool) -> dict[str, Any]:
    """Return Anthropic's usage, whose input tokens exclude those read from the cache and written to it."""
    shown: dict[str, Any] = {"input_tokens": usage.prompt_tokens, "output_tokens": usage.completion_tokens}
    if shows_cached and usage.cached_tokens is not None:
        shown["input_tokens"] -= usage.cached_tokens
        shown["cache_read_input_tokens"] = usage.cached_tokens
        if usage.created_cache_tokens is not None:
            shown["input_tokens"] -= usage.created_cache_tokens
            shown["cache_creation_input_tokens"] = usage.created_cache_tokens
        shown["input_tokens"] = max(0, shown["input_tokens"])  # as in vLLM, whatever its engine counts
    if usage.reasoning_tokens is not None:
        shown["output_tokens_details"] = {"thinking_tokens": usage.reasoning_tokens}
    return shown
