"""POST /v1/chat/completions/derender and /v1/completions/derender: replies of ids as OpenAI's, as vLLM does."""

import time
from collections.abc import Callable, Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from tokenwire.coordinator.api.api_request import RequestHeaders, caller_of, context_of
from tokenwire.coordinator.api.aside import INLINE_TOKENS, aside, each_aside
from tokenwire.coordinator.api.fields.common import RequestFields
from tokenwire.coordinator.api.fields.usage import full_usage_object
from tokenwire.coordinator.api.long_response import long_response
from tokenwire.coordinator.api.openai.chat import ChatService
from tokenwire.coordinator.api.openai.chat_request import planned_rules
from tokenwire.coordinator.api.openai.derender_logprobs import chat_scores, completion_scores, most_shown
from tokenwire.coordinator.api.openai.derender_request import (
    DerenderChatRequest,
    DerenderCompletionRequest,
    GivenChoice,
    GivenReply,
    check_prompt_ids,
    check_replies,
    required,
)
from tokenwire.coordinator.api.openai.derender_stream import ChatDerenderer, CompletionDerenderer
from tokenwire.coordinator.api.openai.message import message_object
from tokenwire.coordinator.api.respond import while_connected
from tokenwire.coordinator.api.router import ApiRouter
from tokenwire.coordinator.generation.model_directory import ModelDirectory
from tokenwire.coordinator.parsing.message import MOST_INLINE, ParsedMessage, ParserPlan
from tokenwire.coordinator.text.detokenizer import TextRules, TextStreams
from tokenwire.coordinator.types import ServedModel, Usage
from tokenwire.errors import InvalidRequest

_AfterPrompt = tuple[Sequence[int], GivenChoice]
"""A choice, and the prompt that it is to."""
_Decode = Callable[[_AfterPrompt], dict[str, Any]]
_CHOICE_WORK = 16
"""Of a choice beside that of its tokens: making its stream and its parser."""


def derender_routes(service: ChatService, models: ModelDirectory, most_bytes: int) -> ApiRouter:
    """Return the routes. They take no worker. most_bytes: that a request may take."""
    router = ApiRouter()

    @router.post("/v1/chat/completions/derender", DerenderChatRequest)
    async def derender_chat(body: DerenderChatRequest, request: Request) -> Response:
        headers = RequestHeaders.of(request)
        model = await models.resolve(body.model, headers.caller)
        plan = await _plan(service, body, headers, model)
        rules = _text_rules(body.chat_request, plan)
        check_prompt_ids(body.prompt_token_ids, model)
        if not body.stream:
            reply = required(body.generate_response, "generate_response")
            await check_replies([reply], model, most_bytes)
            connection = context_of(request.scope).connection
            return long_response(await while_connected(connection, _chat(body, reply, model, rules, plan)), "choices")
        if plan is not None:
            required(body.prompt_token_ids, "prompt_token_ids")
        chunk = body.chunk(model, body.prompt_token_ids)
        derenderer = ChatDerenderer(body, model, rules, plan)
        inline = INLINE_TOKENS if plan is None else MOST_INLINE
        return JSONResponse(await aside(body.streamed_tokens(), lambda: derenderer.derender(chunk), inline))

    _add_completions(router, models, most_bytes)
    return router


def _add_completions(router: ApiRouter, models: ModelDirectory, most_bytes: int) -> None:
    @router.post("/v1/completions/derender", DerenderCompletionRequest)
    async def derender_completion(body: DerenderCompletionRequest, request: Request) -> Response:
        model = await models.resolve(body.model, caller_of(request))
        rules = _text_rules(body.completion_request, None)
        if body.stream:
            chunk = body.chunk(model, body.of_stream("prompt_token_ids"))
            derenderer = CompletionDerenderer(body, model, rules)
            return JSONResponse(await aside(body.streamed_tokens(), lambda: derenderer.derender(chunk)))
        replies = required(body.generate_responses, "generate_responses")
        if not replies:
            raise InvalidRequest("generate_responses must not be empty", param="generate_responses")
        prompts = body.each("prompt_token_ids", len(replies))
        await check_replies(replies, model, most_bytes)
        for prompt in prompts:
            check_prompt_ids(prompt, model)
        connection = context_of(request.scope).connection
        completion = await while_connected(connection, _completion(body, replies, prompts, model, rules))
        return long_response(completion, "choices")


async def _plan(
    service: ChatService, body: DerenderChatRequest, headers: RequestHeaders, model: ServedModel
) -> ParserPlan | None:
    """Return the plan of the parsers of a chat. Raises InvalidRequest if they lack its request."""
    if body.chat_request is not None:
        return (await service.plan(body.chat_request, headers, model))[1]
    if model.parsers is not None:
        raise InvalidRequest(
            "chat_request is required when a tool or reasoning parser is configured because plain detokenization "
            "would leak raw parser markup into content.",
            param="chat_request",
        )
    return None


def _text_rules(request: RequestFields | None, plan: ParserPlan | None) -> TextRules:
    """Return the rules of the text of a request's reply; those of vLLM without a request."""
    rules = TextRules() if request is None else request.text_rules()
    return rules if plan is None else planned_rules(rules, plan)


def _work_of(each: _AfterPrompt) -> int:
    return _CHOICE_WORK + len(each[1].token_ids or ())


def _text(prompt: Sequence[int], choice: GivenChoice, texts: TextStreams, model: ServedModel) -> str:
    """Return the text of a whole choice, without the stop string that ended it."""
    return texts.stream(prompt).step(list(choice.token_ids or ()), choice.is_terminated(model), True)[0]


def _chat_decoder(body: DerenderChatRequest, model: ServedModel, rules: TextRules, plan: ParserPlan | None) -> _Decode:
    request = body.chat_request
    texts = TextStreams(model.tokenizer, rules, 0 if request is None else request.min_tokens)
    hidden, most = plan is not None and plan.rules.hides_tokens, most_shown(request)
    shows_ids = request is not None and request.return_token_ids and not hidden

    def decode(each: _AfterPrompt) -> dict[str, Any]:
        prompt, choice = each
        text, reason = _text(*each, texts, model), choice.finish_reason or "stop"
        message = ParsedMessage(text, None, (), reason)
        if plan is not None:
            message = plan.parser(prompt).full(text, choice.token_ids or (), reason)
        return {
            "index": choice.index,
            "message": message_object("assistant", message.content, message),
            "logprobs": None if hidden else chat_scores(choice.scores, model.token_texts, most=most),
            "finish_reason": message.finish_reason if choice.finish_reason else None,
            "stop_reason": choice.stop_reason,
            "token_ids": choice.token_ids if shows_ids else None,
            "routed_experts": None,
        }

    return decode


async def _chat(
    body: DerenderChatRequest, reply: GivenReply, model: ServedModel, rules: TextRules, plan: ParserPlan | None
) -> dict[str, Any]:
    prompt = body.prompt_token_ids or reply.prompt_token_ids or []
    decode, inline = _chat_decoder(body, model, rules, plan), INLINE_TOKENS if plan is None else MOST_INLINE
    choices = await each_aside([(prompt, choice) for choice in reply.choices], _work_of, decode, inline)
    return {
        "id": reply.request_id,
        "object": "chat.completion",
        "created": int(time.time()),
        "model": body.model or model.name,
        "choices": choices,
        "service_tier": None,
        "system_fingerprint": None,
        "usage": _usage(body.prompt_tokens or 0, [reply]),
        "prompt_logprobs": reply.prompt_logprobs,
        "prompt_token_ids": None,
        "prompt_text": None,
        "kv_transfer_params": reply.kv_transfer_params,
        "ec_transfer_params": None,
        "metrics": reply.metrics,
    }


def _completion_decoder(body: DerenderCompletionRequest, model: ServedModel, rules: TextRules) -> _Decode:
    request = body.completion_request
    texts = TextStreams(model.tokenizer, rules, 0 if request is None else request.min_tokens)

    def decode(each: _AfterPrompt) -> dict[str, Any]:
        choice = each[1]
        return {
            "text": _text(*each, texts, model),
            "logprobs": completion_scores(choice.scores, model.token_texts),
            "finish_reason": choice.finish_reason,
            "stop_reason": choice.stop_reason,
            "token_ids": None,
            "prompt_logprobs": None,
            "prompt_token_ids": None,
            "routed_experts": None,
        }

    return decode


async def _completion(
    body: DerenderCompletionRequest,
    replies: Sequence[GivenReply],
    prompts: Sequence[list[int] | None],
    model: ServedModel,
    rules: TextRules,
) -> dict[str, Any]:
    after = [
        (given or reply.prompt_token_ids or [], choice)
        for reply, given in zip(replies, prompts, strict=True)
        for choice in reply.choices
    ]
    choices = await each_aside(after, _work_of, _completion_decoder(body, model, rules))
    transfers = [reply.kv_transfer_params for reply in replies]
    same = all(transfer == transfers[0] for transfer in transfers)
    return {
        "id": replies[0].request_id,
        "object": "text_completion",
        "created": int(time.time()),
        "model": body.model or model.name,
        "choices": [{"index": index, **choice} for index, choice in enumerate(choices)],
        "service_tier": None,
        "system_fingerprint": None,
        "usage": _usage(sum(count or 0 for count in body.each("prompt_tokens", len(replies))), replies),
        "kv_transfer_params": transfers[0] if same else None,
        "ec_transfer_params": None,
        "metrics": replies[0].metrics if len(replies) == 1 else None,
    }


def _usage(prompt_tokens: int, replies: Sequence[GivenReply]) -> dict[str, Any]:
    return full_usage_object(Usage(prompt_tokens, sum(reply.tokens for reply in replies)))
