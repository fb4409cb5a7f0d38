"""SGLang's POST /generate, so that rollout loops written for it run on vLLM workers; aborts are in abort.py."""

import uuid
from functools import partial

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from tokenwire.coordinator.api.api_request import RequestHeaders, UnsupportedFields
from tokenwire.coordinator.api.json_pieces import array_of, object_pieces
from tokenwire.coordinator.api.long_response import LongResponse
from tokenwire.coordinator.api.respond import EventStream, collect
from tokenwire.coordinator.api.router import ApiRouter
from tokenwire.coordinator.api.tokens.sglang_request import (
    HARMLESS,
    NOT_SERVED,
    SAMPLING_HARMLESS,
    SAMPLING_NOT_SERVED,
    SglangRequest,
)
from tokenwire.coordinator.api.tokens.sglang_response import SglangChoice, SglangChunks
from tokenwire.coordinator.generation.model_directory import ModelDirectory
from tokenwire.coordinator.generation.service import GenerationService
from tokenwire.coordinator.generation.traffic_split import Conversation
from tokenwire.coordinator.output.collect import CollectedChoice


def sglang_routes(generation: GenerationService, models: ModelDirectory) -> ApiRouter:
    """Return the routes. The list of a router's workers has one entry, this service, which routes to all workers."""
    router = ApiRouter()
    unsupported = UnsupportedFields(NOT_SERVED, HARMLESS)
    unsupported_params = UnsupportedFields(SAMPLING_NOT_SERVED, SAMPLING_HARMLESS)

    @router.post("/generate", SglangRequest)
    @router.post("/generate", SglangRequest, method="PUT")
    async def generate(body: SglangRequest, request: Request) -> Response:
        unsupported.check(body.model_extra)
        unsupported_params.check(body.sampling_params.model_extra)
        headers = RequestHeaders.of(request)
        conversation_id = headers.conversation_by("X-SMG-Routing-Key")
        response_id = body.rid or headers.request_id or uuid.uuid4().hex
        generation_request = body.to_generation(response_id, conversation_id, headers)
        conversation = partial(Conversation, headers.caller.tenant, conversation_id)
        model = await models.resolve(None, headers.caller, conversation)
        prepared = await generation.prepare(generation_request, model, headers.caller)
        choices = [SglangChoice(body, prepared, index, response_id) for index in range(prepared.choices)]
        if body.stream:
            return EventStream(generation, prepared, SglangChunks(choices))
        return _full_response(body, choices, await collect(generation, prepared, request))

    @router.get("/workers")
    async def workers(request: Request) -> Response:
        return JSONResponse({"workers": [{"id": "tokenwire", "url": _origin(request)}]})

    @router.get("/list_workers")
    async def list_workers(request: Request) -> Response:
        return JSONResponse({"urls": [_origin(request)]})

    return router


def _origin(request: Request) -> str:
    return str(request.base_url).rstrip("/")


def _full_response(body: SglangRequest, choices: list[SglangChoice], collected: list[CollectedChoice]) -> Response:
    wholes = (choice.whole(made) for choice, made in zip(choices, collected, strict=True))
    return LongResponse(array_of(wholes) if body.is_batch else object_pieces(next(wholes)))
