"""POST /v1/chat/completions."""

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from tokenwire.coordinator.api.api_request import RequestHeaders, UnsupportedFields
from tokenwire.coordinator.api.aside import aside
from tokenwire.coordinator.api.fields.finish import weight_version_spans
from tokenwire.coordinator.api.fields.logprobs import chat_logprobs, prompt_logprobs
from tokenwire.coordinator.api.fields.token_history import shown_history, shown_message_ids
from tokenwire.coordinator.api.fields.tools import check_tool_choice
from tokenwire.coordinator.api.fields.usage import full_usage_object
from tokenwire.coordinator.api.long_response import long_response
from tokenwire.coordinator.api.openai.chat_request import CHAT_NOT_SERVED, ChatCompletionRequest
from tokenwire.coordinator.api.openai.chunk_encoder import ChatChunks
from tokenwire.coordinator.api.openai.message import message_object
from tokenwire.coordinator.api.openai.parsed_chunk_encoder import ParsedChatChunks
from tokenwire.coordinator.api.respond import EventStream, collect, while_connected
from tokenwire.coordinator.api.router import ApiRouter
from tokenwire.coordinator.generation.limits import lacks_route
from tokenwire.coordinator.generation.model_directory import ModelDirectory
from tokenwire.coordinator.generation.service import GenerationService, PreparedRequest
from tokenwire.coordinator.generation.traffic_split import Conversation
from tokenwire.coordinator.media.content import MediaFeatures
from tokenwire.coordinator.output.collect import CollectedChoice
from tokenwire.coordinator.output.settings import ApiSettings
from tokenwire.coordinator.output.sse import ChunkEncoder
from tokenwire.coordinator.parsing.message import MOST_INLINE, MessageParser, ParsedMessage, ParserPlan
from tokenwire.coordinator.parsing.rules import require_tool_parser
from tokenwire.coordinator.text.template.messages import ChatMessage
from tokenwire.coordinator.text.template.pictures import reject_pictures
from tokenwire.coordinator.types import ChatPrompt, ServedModel, Usage
from tokenwire.process.threads import in_thread
from tokenwire.process.value_class import value_class

_APIS = {"chatcmpl-": "Chat Completions API", "resp_": "Responses API", "msg_": "Messages API"}
"""What is translated to a chat, by the prefixes of ids, with vLLM's names."""


@value_class
class ChatCall:
    """One chat request: its body, the prepared request, and the plan of parsers for its reply."""

    body: ChatCompletionRequest
    api: ApiSettings
    prepared: PreparedRequest
    plan: ParserPlan | None
    counts_reasoning: bool
    created: int
    share: str = ""
    """Whose it is, where it takes turns with others."""

    def parser(self) -> MessageParser:
        """Return the parser of one choice; requires a plan."""
        assert self.plan is not None
        return self.plan.parser(self.prepared.prompts[0].new_ids)

    def keep(self, index: int, messages: Sequence[ChatMessage]) -> None:
        """Store a choice, if anything keeps the reply, as the messages that clients get."""
        self.prepared.keep(index, messages)


class ChatService:
    """Serves chat requests, also for other routes that translate to them."""

    def __init__(self, generation: GenerationService, models: ModelDirectory, api: ApiSettings) -> None:
        self._generation = generation
        self._models = models
        self._api = api

    async def prepare(
        self,
        body: ChatCompletionRequest,
        headers: RequestHeaders,
        prefix: str = "chatcmpl-",
        model: ServedModel | None = None,
        submits: bool = True,
        keeps_output: bool = False,
    ) -> ChatCall:
        """Check, plan, render and tokenize. Raises InvalidRequest, NotFound, Forbidden or Unavailable.

        model: the body's, for a route that needed it for translating to this body. submits: whether the call is to be
        generated; without that, a full queue does not concern it. keeps_output: whether the reply is kept until it is
        complete, although it is streamed.
        """
        model, plan = await self.plan(body, headers, model)
        if model.pooling is not None:
            raise lacks_route(model, _APIS[prefix])
        generation_request = body.to_generation(prefix, headers, plan, self._api)
        if keeps_output:
            generation_request = replace(generation_request, streams=False)
        if model.media and not isinstance(generation_request.prompts[0], ChatPrompt):
            reject_pictures(body.messages)
        preparing = self._generation.prepare(generation_request, model, headers.caller, submits, headers.body)
        prepared = await (while_connected(headers.connection, preparing) if model.media else preparing)
        if prepared.has_large_parameters:
            body.drop_copied()
        if prepared.prompts[0].media is not None:
            # Its pictures, and encoded: a body is kept until its reply has been sent, which needs this of them.
            body.messages = [{"role": body.messages[-1].get("role", "assistant"), "content": body.echoed()}]
        counts_reasoning = model.parsers is not None and model.parsers.counts_reasoning
        return ChatCall(body, self._api, prepared, plan, counts_reasoning, int(time.time()), headers.caller.share)

    async def count_tokens(
        self, body: ChatCompletionRequest, headers: RequestHeaders, model: ServedModel | None = None
    ) -> int:
        """Return the length of a chat's prompt, which may exceed the model's. Takes and raises what `prepare` does."""
        model, plan = await self.plan(body, headers, model)
        prompt = body.prompt(self._api, headers, headers.conversation(body))
        self._generation.check_transfers(body.engine_fields())
        if plan is not None and plan.prompt_token_ids is not None:
            return len(plan.prompt_token_ids)
        options = body.media_options(self._api)
        preparing = self._generation.prepare_prompt(
            prompt, model, body.truncation(), headers.caller, options, cache_salt=body.cache_salt, body=headers.body
        )
        prepared = await (while_connected(headers.connection, preparing) if model.media else preparing)
        return len(prepared.token_ids)

    async def plan(
        self, body: ChatCompletionRequest, headers: RequestHeaders, model: ServedModel | None
    ) -> tuple[ServedModel, ParserPlan | None]:
        """Check a body; return its model, and the plan of its parsers. Raises what `prepare` does."""
        body.check()
        model = model or await self._models.resolve(
            body.model,
            headers.caller,
            lambda: Conversation(headers.caller.tenant, headers.conversation(body), body.messages),
        )
        tools = body.tool_fields()
        choice = check_tool_choice(tools) if tools else None
        if model.parsers is not None:
            # A parser's own request model takes a while to validate a long conversation.
            return model, await in_thread(model.parsers.plan, body.as_json(), choice)
        if choice is not None:
            require_tool_parser(choice)
        return model, None

    def stream(self, call: ChatCall, encoder: ChunkEncoder | None = None) -> EventStream:
        """Return the streamed response of a call, in another route's format if an encoder is given."""
        return EventStream(self._generation, call.prepared, encoder or _chunks(call))

    async def media_features(self, call: ChatCall) -> MediaFeatures | None:
        """Return what a rendered request has of its pictures; None if there are none. Raises what `prepare` does."""
        prepared, media = call.prepared, call.prepared.prompts[0].media
        if media is None or self._generation.media is None:
            return None
        return await self._generation.media.features(media, prepared.model, call.body.features_payload, call.share)

    async def respond(self, call: ChatCall, request: Request) -> Response:
        """Return OpenAI's response, streamed or not. Raises errors that precede its start."""
        if call.body.stream:
            return self.stream(call)
        return long_response(await full_response(call, await self.collect(call, request)), "choices")

    async def collect(self, call: ChatCall, request: Request) -> list[CollectedChoice]:
        """Generate all choices of a call. Raises the first error, or ClientDisconnect."""
        return await collect(self._generation, call.prepared, request)


def chat_routes(service: ChatService) -> ApiRouter:
    """Return the chat route."""
    router = ApiRouter(accepts_transfers=True)
    unsupported = UnsupportedFields(CHAT_NOT_SERVED)

    @router.post("/v1/chat/completions", ChatCompletionRequest)
    async def create_chat_completion(body: ChatCompletionRequest, request: Request) -> Response:
        unsupported.check_body(body)
        return await service.respond(await service.prepare(body, RequestHeaders.of(request)), request)

    return router


def _chunks(call: ChatCall) -> ChatChunks:
    body, prepared = call.body, call.prepared
    role, echo = body.role, body.echoed() if body.echo else ""
    options = body.chunk_options(call.api)
    if call.plan is None:
        return ChatChunks(prepared, call.created, options, role=role, echo=echo)
    return ParsedChatChunks(
        prepared,
        call.created,
        options,
        role=role,
        echo=echo,
        new_parser=call.parser,
        keep=call.keep if prepared.keeps_messages else None,
        hides_tokens=call.plan.rules.hides_tokens,
        counts_reasoning=call.counts_reasoning,
    )


async def parse_choices(call: ChatCall, choices: list[CollectedChoice]) -> tuple[list[ParsedMessage], Usage]:
    """Return the parsed messages of full choices, and the usage. Raises ParserFailed."""
    prepared = call.prepared
    usage = Usage(prepared.prompt_tokens, sum(len(choice.token_ids) for choice in choices))
    if call.api.prompt_tokens_details:
        usage.multimodal_tokens = prepared.multimodal_tokens
        usage.add_cache(choices[0].prefill)
    if call.plan is None:
        return [ParsedMessage(choice.text, None, (), choice.finish.reason) for choice in choices], usage
    # Parsers take a second for 32,000 tokens.
    messages, reasoning_tokens = await aside(usage.completion_tokens, lambda: _parsed(call, choices), MOST_INLINE)
    if call.counts_reasoning:
        usage.reasoning_tokens = reasoning_tokens
    return messages, usage


def _parsed(call: ChatCall, choices: list[CollectedChoice]) -> tuple[list[ParsedMessage], int]:
    """Return the messages of choices, and the number of their reasoning tokens if these are counted."""
    messages, reasoning_tokens = [], 0
    for choice in choices:
        parser = call.parser()
        messages.append(parser.full(choice.text, choice.token_ids, choice.finish.reason, choice.texts))
        if call.counts_reasoning:
            reasoning_tokens += parser.reasoning_tokens(choice.token_ids)
    return messages, reasoning_tokens


async def full_response(call: ChatCall, choices: list[CollectedChoice]) -> dict[str, Any]:
    """Return OpenAI's full response, with its choices as an iterator. Raises ParserFailed."""
    body, prepared, first = call.body, call.prepared, choices[0]
    messages, usage = await parse_choices(call, choices)
    prompt = prepared.prompts[0]
    return {
        "id": prepared.request.request_id,
        "object": "chat.completion",
        "created": call.created,
        "model": prepared.model.name,
        "choices": (_choice(call, index, choice, messages[index]) for index, choice in enumerate(choices)),
        "service_tier": None,
        "system_fingerprint": None,
        "usage": full_usage_object(usage),
        "prompt_logprobs": prompt_logprobs(first.prefill.logprobs),
        "prompt_token_ids": list(prompt.token_ids) if body.return_token_ids else None,
        "prompt_text": prepared.chat_text() if body.return_prompt_text else None,
        "kv_transfer_params": first.finish.kv_transfer_params,
        "ec_transfer_params": None,
        "metrics": None,
        **shown_history(prepared),
    }


def _choice(call: ChatCall, index: int, choice: CollectedChoice, message: ParsedMessage) -> dict[str, Any]:
    body = call.body
    style = body.logprob_style(call.api)
    hidden = call.plan is not None and call.plan.rules.hides_tokens
    content = message.content
    if body.echo:
        content = body.echoed() + (content or "")
    shown = message_object(body.role, content, message)
    call.keep(index, [shown])
    logprobs = None if style is None or hidden else chat_logprobs(choice.logprobs or [], style)
    if not hidden:
        ids = shown_message_ids(call.prepared, choice.token_ids, None if style is None else choice.logprobs or [])
        shown = {**shown, **ids}  # another one: these are not kept with the message
    token_ids = choice.token_ids if body.return_token_ids and not hidden else None
    return {
        "index": index,
        "message": shown,
        "logprobs": logprobs,
        "finish_reason": message.finish_reason,
        "stop_reason": choice.finish.stop_reason,
        "token_ids": token_ids,
        "routed_experts": None,
        **({} if token_ids is None else {"weight_versions": weight_version_spans(choice.finish)}),
    }
