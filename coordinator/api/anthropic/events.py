"""The events of a streamed message: each content block is started, filled and stopped before the next one."""

from collections.abc import Iterator
from json.encoder import encode_basestring
from typing import Any

from tokenwire.coordinator.api.anthropic.response import as_messages, new_signature, opened_block, shown_usage, stop
from tokenwire.coordinator.api.errors import anthropic_error_event
from tokenwire.coordinator.api.fields.finish import resumption_fields
from tokenwire.coordinator.api.json_text import compact
from tokenwire.coordinator.api.message_parts import MessagePart
from tokenwire.coordinator.api.openai.chat import ChatCall
from tokenwire.coordinator.text.logprobs import ScoredPosition
from tokenwire.coordinator.text.template.messages import ChatMessage
from tokenwire.coordinator.types import Finish, Usage
from tokenwire.errors import TokenwireError

_PING = 'event: ping\ndata: {"type":"ping"}\n\n'
# Type of a delta, and the field of its text.
_DELTAS = {
    "text": ("text_delta", "text"),
    "reasoning": ("thinking_delta", "thinking"),
    "tool_call": ("input_json_delta", "partial_json"),
}


class MessageEvents:
    """Renders the events of one message; a delta concatenates three strings."""

    def __init__(self, call: ChatCall) -> None:
        self._call = call
        self._head = ""

    def opening(self, usage: Usage) -> str:
        """Render the start of the message."""
        prepared = self._call.prepared
        message: dict[str, Any] = {
            "id": prepared.request.request_id,
            "type": "message",
            "role": "assistant",
            "model": prepared.model.name,
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": self._usage(usage),
        }
        return _event("message_start", message=message) + _PING

    def open_part(self, part: MessagePart) -> str:
        """Render the start of a block."""
        kind, field = _DELTAS[part.kind]
        self._head = (
            "event: content_block_delta\n"
            f'data: {{"type":"content_block_delta","index":{part.index},"delta":{{"type":"{kind}","{field}":'
        )
        return _event("content_block_start", index=part.index, content_block=opened_block(part))

    def part_delta(self, part: MessagePart, text: str, logprobs: list[ScoredPosition]) -> str:
        """Render one delta."""
        return f"{self._head}{encode_basestring(text)}}}}}\n\n"

    def close_part(self, part: MessagePart, finish: Finish | None) -> str:
        """Render the end of a block."""
        end = _event("content_block_stop", index=part.index)
        if part.kind != "reasoning":
            return end
        signature = {"type": "signature_delta", "signature": new_signature()}
        return _event("content_block_delta", index=part.index, delta=signature) + end

    def closing(self, parts: list[MessagePart], finish: Finish, usage: Usage) -> str:
        """Render the stop reason, the usage, and the end of the message."""
        end = {"delta": stop(parts, finish), "usage": self._usage(usage), **resumption_fields(finish)}
        return _event("message_delta", **end) + _event("message_stop")

    def keep_part(self, part: MessagePart, finish: Finish) -> None:
        """Do nothing: there are no log-probabilities."""

    def ending(self, part: MessagePart, finish: Finish, usage: Usage) -> Iterator[bytes]:
        """Render the end of a part and of the message."""
        yield self.close_part(part, finish).encode()
        yield self.closing([part], finish, usage).encode()

    def error(self, error: TokenwireError, parts: list[MessagePart]) -> str:
        """Render an error, as the last event."""
        return anthropic_error_event(error).decode()

    def as_messages(self, parts: list[MessagePart]) -> list[ChatMessage]:
        """Return the chat messages that parts become when a client sends them back."""
        return as_messages(parts)

    def _usage(self, usage: Usage) -> dict[str, Any]:
        return shown_usage(usage, self._call.api.prompt_tokens_details)


def _event(kind: str, **fields: Any) -> str:
    return f"event: {kind}\ndata: {compact({'type': kind, **fields})}\n\n"
