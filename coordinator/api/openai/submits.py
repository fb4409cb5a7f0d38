"""POST /tokenwire/v1/chat/completions/render and /tokenwire/v1/completions/render: what workers would get, to debug."""

from typing import Any

from google.protobuf.json_format import MessageToDict
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from tokenwire.coordinator.api.api_request import RequestHeaders, UnsupportedFields
from tokenwire.coordinator.api.fields.token_history import shown_history
from tokenwire.coordinator.api.openai.chat import ChatService
from tokenwire.coordinator.api.openai.chat_request import CHAT_NOT_SERVED, ChatCompletionRequest
from tokenwire.coordinator.api.openai.completions import COMPLETIONS_NOT_SERVED, CompletionRequest, prepare_completion
from tokenwire.coordinator.api.router import ApiRouter
from tokenwire.coordinator.auth.caller import Caller
from tokenwire.coordinator.generation.model_directory import ModelDirectory
from tokenwire.coordinator.generation.service import GenerationService, PreparedRequest
from tokenwire.coordinator.parsing.message import ParserPlan
from tokenwire.coordinator.parsing.settings import ParserSettings


def submit_routes(
    service: ChatService, generation: GenerationService, models: ModelDirectory, parsers: ParserSettings
) -> ApiRouter:
    """Return the routes, for debugging. They show prompts to all clients."""
    router = ApiRouter(accepts_transfers=True)
    unsupported_chat = UnsupportedFields(CHAT_NOT_SERVED)
    unsupported_completion = UnsupportedFields(COMPLETIONS_NOT_SERVED)

    @router.post("/tokenwire/v1/chat/completions/render", ChatCompletionRequest)
    async def show_chat(body: ChatCompletionRequest, request: Request) -> Response:
        unsupported_chat.check_body(body)
        headers = RequestHeaders.of(request)
        call = await service.prepare(body, headers)
        shown = _rendered(generation, call.prepared, headers.caller)
        return JSONResponse({**shown, "parsing": _parsing(call.plan, parsers)})

    @router.post("/tokenwire/v1/completions/render", CompletionRequest)
    async def show_completion(body: CompletionRequest, request: Request) -> Response:
        unsupported_completion.check_body(body)
        headers = RequestHeaders.of(request)
        prepared = await prepare_completion(body, headers, generation, models)
        return JSONResponse({**_rendered(generation, prepared, headers.caller), "parsing": None})

    return router


def _rendered(generation: GenerationService, prepared: PreparedRequest, caller: Caller) -> dict[str, Any]:
    """Return the messages for workers as protobuf's JSON, and the coordinator's own part."""
    rules, submits = prepared.request.text, generation.submits(prepared, caller)
    return {
        "object": "tokenwire.render",
        "model": prepared.model.name,
        "prompts": [
            prompt.text if prompt.history is None else prepared.text_of(number * prepared.request.n)
            for number, prompt in enumerate(prepared.prompts)
        ],
        **shown_history(prepared),
        "submits": [MessageToDict(submit, preserving_proto_field_name=True) for submit in submits],
        "n": prepared.request.n,
        "text": {
            "stop": list(rules.stop),
            "include_stop_str_in_output": rules.include_stop_str_in_output,
            "skip_special_tokens": rules.skip_special_tokens,
            "spaces_between_special_tokens": rules.spaces_between_special_tokens,
        },
    }


def _parsing(plan: ParserPlan | None, parsers: ParserSettings) -> dict[str, Any] | None:
    """Return how the reply is parsed; None: its text is the content."""
    if plan is None:
        return None
    return {
        "tool_call_parser": parsers.tool_call_parser,
        "reasoning_parser": parsers.reasoning_parser,
        "tool_choice": plan.rules.tool_choice,
        "parallel_tool_calls": plan.rules.parallel_tool_calls,
        "include_reasoning": plan.rules.include_reasoning,
    }
