"""The Response object and its items, for full and streamed responses."""

import json
import time
import uuid
from collections.abc import Iterator, Mapping
from typing import Any, Literal

from tokenwire.coordinator.api.fields.finish import resumption_fields
from tokenwire.coordinator.api.fields.logprobs import LogprobStyle, chat_entries
from tokenwire.coordinator.api.json_pieces import JsonPieces, array_of, object_pieces
from tokenwire.coordinator.api.message_parts import MessagePart
from tokenwire.coordinator.api.openai.chat import ChatCall
from tokenwire.coordinator.api.responses.request import ResponsesRequest
from tokenwire.coordinator.api.responses.tools import Tools
from tokenwire.coordinator.types import Finish, Usage
from tokenwire.errors import InvalidRequest, TokenwireError
from tokenwire.protocol.seeds import GREEDY_BELOW

Status = Literal["queued", "in_progress", "completed", "incomplete", "failed", "cancelled"]

_PREFIXES = {"reasoning": "rs_", "text": "msg_"}


def item_id(part: MessagePart, tools: Tools) -> str:
    """Return a new id for an item."""
    prefix = _PREFIXES.get(part.kind) or tools.kind_of(part.name).id_prefix
    return prefix + uuid.uuid4().hex


def status_of(finish: Finish | None) -> Status:
    """Return the status of a response, or of its last item, by its finish."""
    return "incomplete" if finish is not None and finish.reason in ("length", "abort") else "completed"


def text_part(text: str, logprobs: list[Any]) -> dict[str, Any]:
    """Return a message's only part."""
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": logprobs}


def reasoning_part(text: str) -> dict[str, Any]:
    """Return a reasoning item's only part."""
    return {"type": "reasoning_text", "text": text}


def opened_item(part: MessagePart, id_: str, tools: Tools) -> dict[str, Any]:
    """Return an item at its start."""
    item = _item(part, id_, "in_progress", tools)
    if part.kind == "tool_call":
        kind = tools.kind_of(part.name)
        return {**item, kind.field: kind.read("")}
    return {**item, "content": []}


def closed_item(part: MessagePart, id_: str, status: Status, tools: Tools) -> dict[str, Any]:
    """Return a complete or truncated item, without log-probabilities."""
    item = _item(part, id_, status, tools)
    match part.kind:
        case "text":
            item["content"] = [text_part(part.text, [])]
        case "reasoning":
            item["content"] = [reasoning_part(part.text)]
        case "tool_call":
            kind = tools.kind_of(part.name)
            item[kind.field] = kind.read(part.text)
    return item


def _item(part: MessagePart, id_: str, status: Status, tools: Tools) -> dict[str, Any]:
    match part.kind:
        case "text":
            return {"id": id_, "type": "message", "status": status, "role": "assistant"}
        case "reasoning":
            return {"id": id_, "type": "reasoning", "status": status, "summary": []}
        case "tool_call":
            kind = tools.kind_of(part.name)
            call = {"id": id_, "type": kind.item_type, "status": status, "call_id": part.call_id}
            return {**call, **tools.own_name(part.name)}


def long_item(part: MessagePart, item: dict[str, Any], style: LogprobStyle | None) -> JsonPieces | dict[str, Any]:
    """Return a complete item with the log-probabilities of its part."""
    if style is None or not part.logprobs:
        return item
    shown = {**item["content"][0], "logprobs": chat_entries(part.logprobs, style)}
    whole = {**item, "content": array_of([shown])}
    return JsonPieces(lambda: object_pieces(whole))


def response_pieces(response: Mapping[str, Any]) -> Iterator[bytes]:
    """Yield a Response object in pieces; its items may be such."""
    return object_pieces({**response, "output": array_of(response["output"])})


class ResponseObject:
    """The Response of one request in each of its states."""

    def __init__(self, body: ResponsesRequest, call: ChatCall, stored: bool = False) -> None:
        """Keep the fields to echo. Raises InvalidRequest for values that JSON cannot represent.

        stored: whether clients can retrieve it.
        """
        self.tools = body.sorted_tools
        self._call = call
        self._echo = _echo(body, call, stored)
        self.echo_bytes = sum([_size_of(name, value) for name, value in self._echo.items()])
        """About what those take."""

    def in_progress(self, status: Status = "in_progress") -> dict[str, Any]:
        """Return it before the first item."""
        return self._object(status, [])

    def cancelled(self, items: list[Any]) -> dict[str, Any]:
        """Return it as cancelled by the client."""
        return self._object("cancelled", items)

    def ended(self, items: list[Any], finish: Finish, usage: Usage) -> dict[str, Any]:
        """Return it complete or truncated."""
        status = status_of(finish)
        details = {"incomplete_details": {"reason": "max_output_tokens"}} if status == "incomplete" else {}
        ended = {
            **self._object(status, items),
            **details,
            "usage": usage_of_response(usage),
            **resumption_fields(finish),
        }
        if status == "completed":
            ended["completed_at"] = int(time.time())
        if finish.kv_transfer_params is not None:
            ended["kv_transfer_params"] = finish.kv_transfer_params
        return ended

    def failed(self, items: list[Any], error: TokenwireError) -> dict[str, Any]:
        """Return it as failed."""
        code = "rate_limit_exceeded" if error.http_status == 429 else "server_error"
        return {**self._object("failed", items), "error": {"code": code, "message": error.message}}

    def _object(self, status: Status, items: list[Any]) -> dict[str, Any]:
        call = self._call
        return {
            "id": call.prepared.request.request_id,
            "object": "response",
            "created_at": call.created,
            "status": status,
            "error": None,
            "incomplete_details": None,
            "model": call.prepared.model.name,
            "output": items,
            "usage": None,
            **self._echo,
        }


def _size_of(name: str, value: Any) -> int:
    """Return about what a field takes. Raises InvalidRequest for values that JSON cannot represent."""
    if isinstance(value, str):
        return len(value)
    try:
        return len(json.dumps(value, allow_nan=False))
    except ValueError as error:
        raise InvalidRequest(f"`{name}` contains a number that is not finite.", param=name) from error


def _echo(body: ResponsesRequest, call: ChatCall, stored: bool) -> dict[str, Any]:
    """Return the fields that a response echoes, with defaults."""
    sampling = call.prepared.sampling
    form = body.text.format if body.text else None
    reasoning = body.reasoning
    return {
        "background": bool(body.background),
        "instructions": body.instructions,
        "max_output_tokens": body.max_output_tokens,
        "max_tool_calls": body.max_tool_calls,
        "metadata": body.metadata or {},
        "parallel_tool_calls": body.parallel_tool_calls is not False,
        "presence_penalty": sampling.presence_penalty,
        "frequency_penalty": sampling.frequency_penalty,
        "previous_response_id": body.previous_response_id,
        "prompt_cache_key": body.prompt_cache_key,
        "reasoning": {"effort": reasoning.effort if reasoning else None, "summary": None},
        "safety_identifier": body.safety_identifier,
        "service_tier": "default",
        "store": stored,
        "temperature": sampling.temperature,
        "text": {"format": form.model_dump(by_alias=True, exclude_unset=True) if form else {"type": "text"}},
        "tool_choice": body.tool_choice or "auto",
        "tools": body.sorted_tools.served,
        "top_logprobs": body.top_logprobs or 0,
        "top_p": 1.0 if sampling.temperature < GREEDY_BELOW else sampling.top_p,  # as vLLM resets it
        "truncation": body.truncation or "disabled",
        "user": body.user,
    }


def usage_of_response(usage: Usage) -> dict[str, Any]:
    """Return OpenAI's usage of a response."""
    return {
        "input_tokens": usage.prompt_tokens,
        "input_tokens_details": {
            "cached_tokens": usage.cached_tokens or 0,
            "cache_write_tokens": usage.created_cache_tokens or 0,
        },
        "output_tokens": usage.completion_tokens,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens or 0},
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
    }
