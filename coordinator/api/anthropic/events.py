"""The events of a streamed message: each content block started, filled and stopped before the next one."""

from json.encoder import encode_basestring
from typing import Any

from tokenwire.coordinator.api.anthropic.blocks import Message
from tokenwire.coordinator.api.anthropic.response import new_signature, opened_block, returned, shown_usage, stop
from tokenwire.coordinator.api.errors import anthropic_error_event
from tokenwire.coordinator.api.fields.finish import resumption_fields
from tokenwire.coordinator.api.message_parts import Part
from tokenwire.coordinator.api.openai.chat import ChatCall
from tokenwire.coordinator.output.json_text import compact
from tokenwire.coordinator.text.logprobs import ScoredPosition
from tokenwire.coordinator.types import Finish, Usage
from tokenwire.errors import TokenwireError

_PING = 'event: ping\ndata: {"type":"ping"}\n\n'
# Type of a delta and the field that has what was gained.
_DELTAS = {
    "text": ("text_delta", "text"),
    "reasoning": ("thinking_delta", "thinking"),
    "tool_call": ("input_json_delta", "partial_json"),
}


class MessageEvents:
    """Renders the events of one message; a delta is three strings put together."""

    def __init__(self, call: ChatCall) -> None:
        self._call = call
        self._head = ""

    def opening(self, usage: Usage) -> str:
        """Render the message as it begins."""
        prepared = self._call.prepared
        message: dict[str, Any] = {
            "id": prepared.request.request_id,
            "type": "message",
            "role": "assistant",
            "model": prepared.model.names[0],
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": self._usage(usage),
        }
        return _event("message_start", message=message) + _PING

    def opened(self, part: Part) -> str:
        """Render the start of a block."""
        kind, field = _DELTAS[part.kind]
        self._head = (
            "event: content_block_delta\n"
            f'data: {{"type":"content_block_delta","index":{part.index},"delta":{{"type":"{kind}","{field}":'
        )
        return _event("content_block_start", index=part.index, content_block=opened_block(part))

    def gained(self, part: Part, text: str, logprobs: list[ScoredPosition]) -> str:
        """Render one delta."""
        return f"{self._head}{encode_basestring(text)}}}}}\n\n"

    def closed(self, part: Part, finish: Finish | None) -> str:
        """Render the end of a block."""
        end = _event("content_block_stop", index=part.index)
        if part.kind != "reasoning":
            return end
        signature = {"type": "signature_delta", "signature": new_signature()}
        return _event("content_block_delta", index=part.index, delta=signature) + end

    def closing(self, parts: list[Part], finish: Finish, usage: Usage) -> str:
        """Render why the message ended, what it cost, and its end."""
        end = {"delta": stop(parts, finish), "usage": self._usage(usage), **resumption_fields(finish)}
        return _event("message_delta", **end) + _event("message_stop")

    def error(self, error: TokenwireError, parts: list[Part]) -> str:
        """Render an error, behind which nothing comes."""
        return anthropic_error_event(error).decode()

    def returned(self, parts: list[Part]) -> list[Message]:
        """Return the chat messages that parts become when a client sends them back."""
        return returned(parts)

    def _usage(self, usage: Usage) -> dict[str, Any]:
        return shown_usage(usage, self._call.api.prompt_tokens_details)


def _event(kind: str, **fields: Any) -> str:
    return f"event: {kind}\ndata: {compact({'type': kind, **fields})}\n\n"
