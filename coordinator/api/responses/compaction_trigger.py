"""Compaction within POST /v1/responses: an input that ends with a `compaction_trigger` gets a summary, as one item.

Codex asks so for its own sessions. It keeps the user's messages itself, and sends the item back in place of the rest.
"""

from typing import Any

from tokenwire.coordinator.api.message_parts import MessagePart
from tokenwire.coordinator.api.openai.chat import ChatCall
from tokenwire.coordinator.api.responses.compaction import REQUEST, finished_summary, summary_item
from tokenwire.coordinator.api.responses.events import ResponseEvents
from tokenwire.coordinator.api.responses.items import messages_of
from tokenwire.coordinator.api.responses.request import ResponsesRequest
from tokenwire.coordinator.api.responses.response import ResponseObject, closed_item
from tokenwire.coordinator.output.collect import CollectedChoice
from tokenwire.coordinator.text.logprobs import ScoredPosition
from tokenwire.coordinator.text.template.messages import ChatMessage
from tokenwire.coordinator.types import Finish, Usage
from tokenwire.errors import InvalidRequest

TRIGGER = "compaction_trigger"


def is_triggered(body: ResponsesRequest) -> bool:
    """Return whether a request asks for a summary. Raises InvalidRequest for one that cannot have it."""
    if not isinstance(body.input, list) or not body.input or body.input[-1].get("type") != TRIGGER:
        return False
    if len(body.input) == 1 and body.previous_response_id is None:
        raise InvalidRequest(f"input has nothing before its {TRIGGER!r}.", param="input")
    for name, is_set in (("background", body.background), ("include", body.wants_logprobs)):
        if is_set:
            raise InvalidRequest(f"`{name}` cannot be served for a {TRIGGER!r}: the reply is a summary.", param=name)
    return True


def summary_request(body: ResponsesRequest) -> ResponsesRequest:
    """Return the request for the summary: the tools stay in the prompt, and none is called."""
    assert isinstance(body.input, list)
    items = [*body.input[:-1], {"role": "user", "content": REQUEST}]
    return body.model_copy(update={"input": items, "tool_choice": "none" if body.tools else None, "store": False})


class SummaryEvents(ResponseEvents):
    """Renders the item of a summary once it is complete, and nothing of how the model came to it."""

    def open_part(self, part: MessagePart) -> str:
        """Render nothing."""
        return ""

    def part_delta(self, part: MessagePart, text: str, logprobs: list[ScoredPosition]) -> str:
        """Render nothing."""
        return ""

    def close_part(self, part: MessagePart, finish: Finish | None) -> str:
        """Render nothing."""
        return ""

    def closing(self, parts: list[MessagePart], finish: Finish, usage: Usage) -> str:
        """Render the item and the complete response. Raises InvalidRequest or EngineFailed."""
        text = "".join(part.text for part in parts if part.kind == "text")
        item = summary_item(text, finish.reason, usage)
        self.items.append(item)
        events = [
            self._event(f"response.output_item.{change}", output_index=0, item=item) for change in ("added", "done")
        ]
        return "".join(events) + self._last(self._response.ended(self.items, finish, usage))

    def as_messages(self, parts: list[MessagePart]) -> list[ChatMessage]:
        """Return the summary as the message that it was to the model."""
        return messages_of(None, [closed_item(part, "", "completed", self._response.tools) for part in parts])


async def summarized(response: ResponseObject, call: ChatCall, choices: list[CollectedChoice]) -> dict[str, Any]:
    """Return the Response with a finished summary. Raises what `finished_summary` does."""
    item, usage = await finished_summary(call, choices[0])
    return response.ended([item], choices[0].finish, usage)
