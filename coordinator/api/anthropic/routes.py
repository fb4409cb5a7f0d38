"""POST /v1/messages, /v1/messages/count_tokens and /v1/messages/render."""

import logging
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from tokenwire.coordinator.api.anthropic.events import MessageEvents
from tokenwire.coordinator.api.anthropic.request import CountTokensRequest, MessagesRequest, messages_translator
from tokenwire.coordinator.api.anthropic.response import as_messages, full_block, shown_usage, stop
from tokenwire.coordinator.api.api_request import RequestHeaders
from tokenwire.coordinator.api.chat_translation import ChatTranslator
from tokenwire.coordinator.api.fields.left_out import LeftOutTools
from tokenwire.coordinator.api.message_parts import PartStream, abort_error, full_parts
from tokenwire.coordinator.api.openai.chat import ChatCall, ChatService, parse_choices
from tokenwire.coordinator.api.openai.chat_request import ChatCompletionRequest
from tokenwire.coordinator.api.openai.render import rendered_chat
from tokenwire.coordinator.api.router import ApiRouter
from tokenwire.coordinator.generation.model_directory import ModelDirectory
from tokenwire.coordinator.generation.traffic_split import Conversation
from tokenwire.coordinator.output.collect import CollectedChoice
from tokenwire.coordinator.text.template.chat_template import ChatTemplate
from tokenwire.coordinator.types import ServedModel
from tokenwire.errors import InvalidRequest

log = logging.getLogger(__name__)

_PROBE = [{"role": role, "content": "t"} for role in ("system", "user", "system", "user")]


def messages_routes(service: ChatService, models: ModelDirectory) -> ApiRouter:
    """Return the routes of the Messages API."""
    router = ApiRouter(accepts_transfers=True)
    translator = messages_translator()
    to_chat = _Translation(models, translator).to_chat
    left_out = LeftOutTools()

    @router.post("/v1/messages", MessagesRequest)
    async def create_message(body: MessagesRequest, request: Request) -> Response:
        headers = RequestHeaders.of(request)
        with translator.named():
            chat, model = await to_chat(body, headers)
            tools, streams = body.left_out_tools, body.stream
            del body  # of a long conversation it takes megabytes
            call = await service.prepare(chat, headers, "msg_", model)
        if streams:
            return left_out.name_in(service.stream(call, PartStream(call, MessageEvents(call))), tools)
        return left_out.name_in(JSONResponse(await _full_response(call, await service.collect(call, request))), tools)

    @router.post("/v1/messages/count_tokens", CountTokensRequest)
    async def count_tokens(body: CountTokensRequest, request: Request) -> Response:
        headers = RequestHeaders.of(request)
        with translator.named():
            chat, model = await to_chat(body, headers)
            count = await service.count_tokens(chat, headers, model)
        return JSONResponse({"input_tokens": count})

    @router.post("/v1/messages/render", MessagesRequest)
    async def render_message(body: MessagesRequest, request: Request) -> Response:
        headers = RequestHeaders.of(request)
        with translator.named():
            chat, model = await to_chat(body, headers)
            call = await service.prepare(chat, headers, model=model, submits=False)
        return left_out.name_in(await rendered_chat(service, call), body.left_out_tools)

    return router


class _Translation:
    """Translates bodies, some of which need their model for it."""

    def __init__(self, models: ModelDirectory, translator: ChatTranslator) -> None:
        self._models = models
        self._translator = translator
        self._placement = SystemPlacement()

    async def to_chat(
        self, body: CountTokensRequest, headers: RequestHeaders
    ) -> tuple[ChatCompletionRequest, ServedModel | None]:
        """Return a body's translation, and its model where that had to be known."""
        model = None
        if body.has_inline_system:
            conversation = partial(Conversation, headers.caller.tenant, headers.conversation_id, body.messages)
            model = await self._models.resolve(body.model, headers.caller, conversation)
        first = model is not None and self._placement.is_first(model.template)
        return body.to_chat(self._translator, first), model


async def _full_response(call: ChatCall, choices: list[CollectedChoice]) -> dict[str, Any]:
    """Return Anthropic's message. Raises ParserFailed, or WorkerLost if a worker aborted the reply."""
    choice, prepared = choices[0], call.prepared
    error = abort_error(choice.finish.reason)
    if error is not None:
        raise error
    messages, usage = await parse_choices(call, choices)
    parts = full_parts(messages[0])
    call.keep(0, as_messages(parts))
    response = {
        "id": prepared.request.request_id,
        "type": "message",
        "role": "assistant",
        "model": prepared.model.name,
        "content": [full_block(part) for part in parts],
        **stop(parts, choice.finish),
        "usage": shown_usage(usage, call.api.prompt_tokens_details),
    }
    if choice.finish.kv_transfer_params is not None:
        response["kv_transfer_params"] = choice.finish.kv_transfer_params
    return response


class SystemPlacement:
    """Whether chat templates accept system messages within a conversation, as Anthropic does; each is probed once."""

    def __init__(self) -> None:
        self._known: WeakKeyDictionary[ChatTemplate, bool] = WeakKeyDictionary()

    def is_first(self, template: ChatTemplate) -> bool:
        """Return whether a template accepts only a leading system message."""
        if template not in self._known:
            self._known[template] = _rejects_later_system_messages(template)
        return self._known[template]


def _rejects_later_system_messages(template: ChatTemplate) -> bool:
    try:
        template.render_messages(_PROBE)
    except InvalidRequest:
        log.warning(
            "the chat template accepts only a leading system message: system messages within conversations of "
            "/v1/messages are moved to the front, and each new one invalidates the cached prefix"
        )
        return True
    return False
