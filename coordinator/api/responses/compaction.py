"""POST /v1/responses/compact: the user's messages of a conversation, and a summary of all of it by its own model."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pydantic import ConfigDict
from starlette.requests import Request
from starlette.responses import Response

from tokenwire.coordinator.api.api_request import RequestHeaders, UnsupportedFields, context_of
from tokenwire.coordinator.api.fields.left_out import LeftOutTools
from tokenwire.coordinator.api.json_text import json_bytes
from tokenwire.coordinator.api.long_response import long_response
from tokenwire.coordinator.api.message_parts import abort_error
from tokenwire.coordinator.api.openai.chat import ChatCall, ChatService, parse_choices
from tokenwire.coordinator.api.openai.message import message_object
from tokenwire.coordinator.api.responses.compaction_item import compaction_item
from tokenwire.coordinator.api.responses.continuation import continue_after
from tokenwire.coordinator.api.responses.input_items import shown_item, with_ids
from tokenwire.coordinator.api.responses.request import (
    Label,
    ReasoningOptions,
    ResponseId,
    ResponsesRequest,
    TextConfig,
    responses_translator,
)
from tokenwire.coordinator.api.responses.response import usage_of_response
from tokenwire.coordinator.output.collect import CollectedChoice
from tokenwire.coordinator.parsing.request_model import RequestModel
from tokenwire.coordinator.response_store.store import ResponseStore
from tokenwire.coordinator.types import Usage
from tokenwire.errors import EngineFailed, InvalidRequest

REQUEST = """\
Write a summary of this conversation. It will take the place of the conversation: of all that was said and done, you \
will see only the summary and the messages of the user. Do not go on with the task, do not call tools, and ask nothing.

Keep in it:
- what the user wants, and all instructions, preferences and limits that still apply
- what was done, in order, and what was decided, with the reasons
- what was found: names of files, functions and commands, identifiers, numbers, error messages and quotations that may \
still be needed, exactly as they are
- the state of the work: what is finished, what works, and what failed
- what is left to do, and the next step

Write only the summary."""
"""The message that a model is asked for the summary with."""

_WITHOUT_EFFECT = frozenset({"metadata", "safety_identifier", "store", "user"})


class CompactionRequest(RequestModel):
    """OpenAI's request to compact; with the fields that Codex adds, and vLLM's in `model_extra`."""

    model_config = ConfigDict(extra="allow")

    model: str | None = None
    input: str | list[dict[str, Any]] | None = None
    instructions: str | None = None
    previous_response_id: ResponseId | None = None
    prompt_cache_key: Label | None = None
    tools: list[dict[str, Any]] | None = None
    parallel_tool_calls: bool | None = True
    reasoning: ReasoningOptions | None = None
    text: TextConfig | None = None
    max_output_tokens: int | None = None

    def items(self) -> list[dict[str, Any]]:
        """Return the input as items. Raises InvalidRequest if there is nothing to compact."""
        if not self.input and self.previous_response_id is None:
            raise InvalidRequest("`input` or `previous_response_id` is required.", param="input")
        return [{"role": "user", "content": self.input}] if isinstance(self.input, str) else self.input or []

    def to_responses(self) -> ResponsesRequest:
        """Return the request for the summary. Raises InvalidRequest."""
        given = {name: getattr(self, name) for name in type(self).model_fields}
        items = [*self.items(), {"role": "user", "content": REQUEST}]
        choice = "none" if self.tools else None
        return ResponsesRequest(
            **{**given, "input": items, "tool_choice": choice, "store": False}, **(self.model_extra or {})
        )


_NOT_SERVED = {
    name: (None, field.default)
    for name, field in ResponsesRequest.model_fields.items()
    if name not in CompactionRequest.model_fields and name not in _WITHOUT_EFFECT
}
"""What only other responses can have, with the values without effect."""


class Compactions:
    """Compacts conversations."""

    def __init__(self, service: ChatService, store: ResponseStore | None) -> None:
        """`store`: of the responses that requests may continue."""
        self._service = service
        self._store = store
        self._translator = responses_translator()
        self._unsupported = UnsupportedFields(_NOT_SERVED)
        self._left_out = LeftOutTools()

    async def respond(self, body: CompactionRequest, request: Request) -> Response:
        """Return the compacted conversation. Raises errors that name the request's fields."""
        self._check(body)
        asks = body.to_responses()
        asks.check_storing(self._store is not None)
        headers = RequestHeaders.of(request)
        context_of(request.scope).body.is_kept = True
        before: Sequence[dict[str, Any]] = ()
        if self._store is not None and body.previous_response_id is not None:
            continued, before = await continue_after(self._store, body.previous_response_id, context_of(request.scope))
            headers.other_conversation_id = continued.conversation_id
        with self._translator.named():
            chat = asks.to_chat(self._translator, before)
            kept = _user_messages([*before, *body.items()])
            del before  # of a long conversation it takes megabytes
            call = await self._service.prepare(chat, headers, "resp_")
        choice = (await self._service.collect(call, request))[0]
        http_response = long_response(await _compacted(call, choice, kept), "output")
        return self._left_out.name_in(http_response, asks.sorted_tools.left_out)

    def _check(self, body: CompactionRequest) -> None:
        extra = body.model_extra or {}
        only_others = {name: extra.pop(name) for name in ResponsesRequest.model_fields if name in extra}
        self._unsupported.check(only_others)


def _user_messages(items: Iterable[Mapping[str, Any]]) -> list[bytes]:
    """Return the user's messages as JSON, as OpenAI lists them."""
    messages = [item for item in items if item.get("type", "message") == "message" and item["role"] == "user"]
    return [json_bytes(shown_item(item)) for item in with_ids(messages)]


def summary_item(text: str, reason: str, usage: Usage) -> dict[str, Any]:
    """Return the item of a summary that ended for a reason. Raises InvalidRequest or EngineFailed if it is none."""
    if reason == "length":
        raise InvalidRequest(
            f"The summary was cut off after {usage.completion_tokens} tokens, by `max_output_tokens` or by the end of "
            f"the model's context, of which the conversation takes {usage.prompt_tokens}: compact it earlier.",
            param="input",
        )
    if not text.strip():
        raise EngineFailed("The model wrote no summary.")
    try:
        return compaction_item(text.strip())
    except ValueError as error:
        raise EngineFailed(f"The model wrote no summary that can be kept: {error}.") from error


async def finished_summary(call: ChatCall, choice: CollectedChoice) -> tuple[dict[str, Any], Usage]:
    """Return the item of a finished summary. Raises InvalidRequest, EngineFailed, WorkerLost or ParserFailed."""
    (message,), usage = await parse_choices(call, [choice])
    usage.add_cache(choice.prefill)
    error = abort_error(choice.finish.reason)
    if error is not None:
        raise error
    call.keep(0, [message_object("assistant", message.content, message)])
    return summary_item(message.content or "", choice.finish.reason, usage), usage


async def _compacted(call: ChatCall, choice: CollectedChoice, kept: list[bytes]) -> dict[str, Any]:
    """Return the response. Raises what `finished_summary` does."""
    item, usage = await finished_summary(call, choice)
    return {
        "id": call.prepared.request.request_id,
        "object": "response.compaction",
        "created_at": call.created,
        "output": [*kept, item],
        "usage": usage_of_response(usage),
    }
