"""Streams of the Responses API."""

from typing import Any

from tests.coordinator.api.replies import STOP, UNCACHED, ServerSentEvent, streamed
from tokenwire.coordinator.api.openai.chat import ChatCall
from tokenwire.coordinator.api.responses.events import ResponseEvents
from tokenwire.coordinator.api.responses.request import ResponsesRequest
from tokenwire.coordinator.api.responses.response import ResponseObject
from tokenwire.coordinator.types import Finish, Prefill


def response_events(
    call: ChatCall, steps: list[str], finish: Finish = STOP, prefill: Prefill = UNCACHED, **body: Any
) -> list[ServerSentEvent]:
    """Return the events of a call."""
    response = ResponseObject(ResponsesRequest(input="Hi", **body), call)
    return streamed(call, ResponseEvents(response, None), steps, finish, prefill)
