"""POST /v1/chat/completions/render and /v1/completions/render: requests for /inference/v1/generate, as by vLLM."""

from collections.abc import Iterable
from itertools import chain

from starlette.requests import Request
from starlette.responses import Response

from tokenwire.coordinator.api.api_request import RequestHeaders, UnsupportedFields
from tokenwire.coordinator.api.fields.common import RequestFields
from tokenwire.coordinator.api.long_response import LongResponse
from tokenwire.coordinator.api.openai.chat import ChatCall, ChatService
from tokenwire.coordinator.api.openai.chat_request import CHAT_NOT_SERVED, ChatCompletionRequest
from tokenwire.coordinator.api.openai.completions import COMPLETIONS_NOT_SERVED, CompletionRequest, prepare_completion
from tokenwire.coordinator.api.openai.rendered_request import generate_request
from tokenwire.coordinator.api.router import ApiRouter
from tokenwire.coordinator.generation.model_directory import ModelDirectory
from tokenwire.coordinator.generation.service import GenerationService
from tokenwire.errors import InvalidRequest


def render_routes(service: ChatService, generation: GenerationService, models: ModelDirectory) -> ApiRouter:
    """Return the routes. They take no worker, so a full queue does not concern them."""
    router = ApiRouter(accepts_transfers=True)
    unsupported_chat = UnsupportedFields(CHAT_NOT_SERVED)
    unsupported_completion = UnsupportedFields(COMPLETIONS_NOT_SERVED)

    @router.post("/v1/chat/completions/render", ChatCompletionRequest)
    async def render_chat(body: ChatCompletionRequest, request: Request) -> Response:
        _check_beam_search(body)
        unsupported_chat.check_body(body)
        call = await service.prepare(body, RequestHeaders.of(request), submits=False)
        return await rendered_chat(service, call)

    @router.post("/v1/completions/render", CompletionRequest)
    async def render_completion(body: CompletionRequest, request: Request) -> Response:
        _check_beam_search(body)
        unsupported_completion.check_body(body)
        prepared = await prepare_completion(body, RequestHeaders.of(request), generation, models, submits=False)
        parts: list[Iterable[bytes]] = []
        for position in range(len(prepared.prompts)):
            parts += [[b"," if position else b"["], await generate_request(body, prepared, position)]
        return LongResponse(chain.from_iterable([*parts, [b"]"]]))

    return router


async def rendered_chat(service: ChatService, call: ChatCall) -> Response:
    """Return a chat as vLLM's GenerateRequest. Raises what workers make of its pictures."""
    features = await service.media_features(call)
    return LongResponse(await generate_request(call.body, call.prepared, 0, features))


def _check_beam_search(body: RequestFields) -> None:
    if body.use_beam_search:
        raise InvalidRequest("Beam search is not supported by the render endpoint")
