"""The events of a streamed response: numbered; each item is opened, filled and closed before the next one."""

from collections.abc import Callable, Iterator
from json.encoder import encode_basestring
from typing import Any

from tokenwire.coordinator.api.fields.logprobs import LogprobStyle, chat_entries, chat_entries_json
from tokenwire.coordinator.api.json_pieces import JsonPieces, object_pieces
from tokenwire.coordinator.api.json_text import compact, json_bytes
from tokenwire.coordinator.api.message_parts import MessagePart, abort_error
from tokenwire.coordinator.api.responses.calls import FUNCTION, ArgumentsReader
from tokenwire.coordinator.api.responses.items import messages_of
from tokenwire.coordinator.api.responses.response import (
    ResponseObject,
    Status,
    closed_item,
    item_id,
    long_item,
    opened_item,
    reasoning_part,
    response_pieces,
    status_of,
    text_part,
)
from tokenwire.coordinator.text.logprobs import ScoredPosition
from tokenwire.coordinator.text.template.messages import ChatMessage
from tokenwire.coordinator.types import Finish, Usage
from tokenwire.errors import TokenwireError

_DELTAS = {
    "reasoning": "response.reasoning_text.delta",
    "text": "response.output_text.delta",
}


OnEnd = Callable[[Status, bytes], None]
"""Gets the status and the JSON of a Response object."""


class ResponseEvents:
    """Renders the events of one response; a delta concatenates a few strings."""

    def __init__(
        self,
        response: ResponseObject,
        style: LogprobStyle | None,
        on_end: OnEnd | None = None,
    ) -> None:
        """on_end: gets the Response object of the last event, before a client has all of that."""
        self._response = response
        self._on_end = on_end
        self._style = style
        self._number = 0
        self._ids: list[str] = []
        self.items: list[Any] = []
        """The items that are complete."""
        # The JSON around a delta's number and text, constant while an item is open.
        self._head = self._middle = ""
        self._call = FUNCTION
        self._reader: ArgumentsReader = FUNCTION.reader()

    def opening(self, usage: Usage) -> str:
        """Render the two events at the start of a response."""
        response = self._response.in_progress()
        return self._event("response.created", response=response) + self._event(
            "response.in_progress", response=response
        )

    def open_part(self, part: MessagePart) -> str:
        """Render the start of an item and of its only part."""
        self._ids.append(item_id(part, self._response.tools))
        item = opened_item(part, self._ids[part.index], self._response.tools)
        events = self._event("response.output_item.added", output_index=part.index, item=item)
        where = self._where(part)
        if part.kind == "tool_call":
            self._call = self._response.tools.kind_of(part.name)
            self._reader = self._call.reader()
        kind = _DELTAS.get(part.kind) or f"{self._call.events}.delta"
        self._head = f'event: {kind}\ndata: {{"type":"{kind}","sequence_number":'
        self._middle = f',{compact(where)[1:-1]},"delta":'
        if part.kind == "tool_call":
            return events
        empty = text_part("", []) if part.kind == "text" else reasoning_part("")
        return events + self._event("response.content_part.added", **where, part=empty)

    def part_delta(self, part: MessagePart, text: str, logprobs: list[ScoredPosition]) -> str:
        """Render one delta."""
        if part.kind == "tool_call":
            text = self._reader.feed(text)
        return self._delta(part, text, logprobs) if text or part.kind != "tool_call" else ""

    def _delta(self, part: MessagePart, text: str, logprobs: list[ScoredPosition]) -> str:
        number = self._number
        self._number += 1
        tail = "}\n\n"
        if part.kind == "text":
            shown = chat_entries_json(logprobs, self._style).decode() if self._style else ""
            tail = f',"logprobs":[{shown}]}}\n\n'
        return f"{self._head}{number}{self._middle}{encode_basestring(text)}{tail}"

    def close_part(self, part: MessagePart, finish: Finish | None) -> str:
        """Render the end of an item's part and of the item."""
        item = closed_item(part, self._ids[part.index], status_of(finish), self._response.tools)
        self.items.append(item)
        where, text = self._where(part), part.text
        match part.kind:
            case "tool_call":
                events = self._called(part, item)
            case "reasoning":
                events = self._event("response.reasoning_text.done", **where, text=text)
            case "text":
                events = self._event("response.output_text.done", **where, text=text, logprobs=[])
        if part.kind != "tool_call":
            events += self._event("response.content_part.done", **where, part=item["content"][0])
        return events + self._event("response.output_item.done", output_index=part.index, item=item)

    def closing(self, parts: list[MessagePart], finish: Finish, usage: Usage) -> str:
        """Render the complete response."""
        return self._last(self._response.ended(self.items, finish, usage))

    def keep_part(self, part: MessagePart, finish: Finish) -> None:
        """Complete an item whose log-probabilities are rendered later."""
        self.items.append(closed_item(part, self._ids[part.index], status_of(finish), self._response.tools))

    def ending(self, part: MessagePart, finish: Finish, usage: Usage) -> Iterator[bytes]:
        """Render the end of such an item and of the response: four events with all log-probabilities."""
        (item,), where, style = self.items, self._where(part), self._style
        assert style is not None
        scores = chat_entries(part.logprobs, style)
        done = {**item["content"][0], "logprobs": scores}
        whole = long_item(part, item, style)
        error = abort_error(finish.reason)
        response = self._response.ended([whole], finish, usage)
        if error is not None:
            response = self._response.failed([whole], error)
        yield from self._pieces("response.output_text.done", **where, text=part.text, logprobs=scores)
        yield from self._pieces("response.content_part.done", **where, part=JsonPieces(lambda: object_pieces(done)))
        yield from self._pieces("response.output_item.done", output_index=part.index, item=whole)
        shown = JsonPieces(lambda: self._kept(response))
        yield from self._pieces(f"response.{response['status']}", response=shown)

    def _kept(self, response: dict[str, Any]) -> Iterator[bytes]:
        """Yield a Response object in pieces, and then pass it on."""
        pieces = []
        for piece in response_pieces(response):
            if self._on_end is not None:
                pieces.append(piece)
            yield piece
        if self._on_end is not None:
            self._on_end(response["status"], b"".join(pieces))

    def _last(self, response: dict[str, Any]) -> str:
        """Render the event of a complete Response object, and pass that on."""
        body, kind = json_bytes(response), f"response.{response['status']}"
        if self._on_end is not None:
            self._on_end(response["status"], body)
        head = f'event: {kind}\ndata: {{"type":"{kind}","sequence_number":{self._number}'
        self._number += 1
        return f'{head},"response":{body.decode()}}}\n\n'

    def _pieces(self, kind: str, **fields: Any) -> Iterator[bytes]:
        yield f"event: {kind}\ndata: ".encode()
        yield from object_pieces({"type": kind, "sequence_number": self._number, **fields})
        self._number += 1
        yield b"\n\n"

    def error(self, error: TokenwireError, parts: list[MessagePart]) -> str:
        """Render the failed response."""
        return self._last(self._response.failed(self.items, error))

    def as_messages(self, parts: list[MessagePart]) -> list[ChatMessage]:
        """Return the chat messages that parts become when a client sends them back."""
        return messages_of(None, self.items)

    def _called(self, part: MessagePart, item: dict[str, Any]) -> str:
        rest, call = self._reader.rest(), self._call
        events = self._delta(part, rest, []) if rest else ""
        if call.events is None:
            return events
        name = {"name": item["name"]} if call is FUNCTION else {}
        return events + self._event(
            f"{call.events}.done", **self._where(part), **name, **{call.field: item[call.field]}
        )

    def _where(self, part: MessagePart) -> dict[str, Any]:
        where: dict[str, Any] = {"item_id": self._ids[part.index], "output_index": part.index}
        return where if part.kind == "tool_call" else {**where, "content_index": 0}

    def _event(self, kind: str, **fields: Any) -> str:
        body = compact({"type": kind, "sequence_number": self._number, **fields})
        self._number += 1
        return f"event: {kind}\ndata: {body}\n\n"
