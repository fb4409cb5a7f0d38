"""POST /inference/v1/generate: vLLM's contract of ids in and ids out, streamed or not."""

import time
from functools import partial
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from tokenwire.coordinator.api.api_request import RequestHeaders, UnsupportedFields
from tokenwire.coordinator.api.fields.logprobs import prompt_logprobs
from tokenwire.coordinator.api.fields.usage import full_usage_object
from tokenwire.coordinator.api.long_response import long_response
from tokenwire.coordinator.api.respond import EventStream, collect
from tokenwire.coordinator.api.router import ApiRouter
from tokenwire.coordinator.api.tokens.generate_request import NOT_SERVED, GenerateRequest
from tokenwire.coordinator.api.tokens.generate_response import GenerateChunks, ending_fields, generate_logprobs_pieces
from tokenwire.coordinator.api.tokens.sampling_params import unsupported_sampling_params
from tokenwire.coordinator.generation.model_directory import ModelDirectory
from tokenwire.coordinator.generation.service import GenerationService, PreparedRequest
from tokenwire.coordinator.generation.traffic_split import Conversation
from tokenwire.coordinator.output.collect import CollectedChoice
from tokenwire.coordinator.output.settings import ApiSettings
from tokenwire.coordinator.types import Usage


def generate_routes(generation: GenerationService, models: ModelDirectory, api: ApiSettings) -> ApiRouter:
    """Return the route."""
    router = ApiRouter(accepts_transfers=True)
    unsupported = UnsupportedFields(NOT_SERVED, ("tools", "messages"))
    unsupported_params = unsupported_sampling_params()

    @router.post("/inference/v1/generate", GenerateRequest)
    async def generate(body: GenerateRequest, request: Request) -> Response:
        unsupported.check(body.model_extra)
        unsupported_params.check(body.sampling_params.model_extra)
        headers = RequestHeaders.of(request)
        response_id = headers.response_id("generate-tokens-", body.request_id)
        generation_request = body.to_generation(response_id, headers)
        conversation = partial(Conversation, headers.caller.tenant, generation_request.conversation_id)
        model = await models.resolve(body.model, headers.caller, conversation)
        prepared = await generation.prepare(generation_request, model, headers.caller)
        if body.stream:
            return EventStream(generation, prepared, GenerateChunks(body, prepared, api.prompt_tokens_details))
        created = int(time.time())
        choices = await collect(generation, prepared, request)
        return long_response(_full_response(body, api, prepared, choices, created), "choices")

    return router


def _full_response(
    body: GenerateRequest, api: ApiSettings, prepared: PreparedRequest, choices: list[CollectedChoice], created: int
) -> dict[str, Any]:
    usage = Usage(prepared.prompt_tokens, sum(len(choice.token_ids) for choice in choices))
    if api.prompt_tokens_details:
        usage.cached_tokens = choices[0].prefill.cached_tokens
    return {
        "request_id": prepared.request.request_id,
        "model": prepared.model.name,
        "created": created,
        "usage": full_usage_object(usage),
        "prompt_logprobs": prompt_logprobs(choices[0].prefill.logprobs),
        "prompt_token_id_logprobs": None,
        "prompt_token_ids": list(prepared.prompts[0].token_ids) if body.return_token_ids else None,
        "mm_placeholders": None,
        "metrics": None,
        "kv_transfer_params": choices[0].finish.kv_transfer_params,
        "ec_transfer_params": None,
        "output_mode": body.output_mode,
        "choices": (_choice(body, index, choice) for index, choice in enumerate(choices)),
    }


def _choice(body: GenerateRequest, index: int, choice: CollectedChoice) -> dict[str, Any]:
    top = body.sampling_params.logprobs
    return {
        "index": index,
        "token_ids": choice.token_ids,
        **({"text": choice.text} if body.shows_text else {}),
        "logprobs": None if top is None else generate_logprobs_pieces(choice.logprobs or [], top, body.shows_text),
        **ending_fields(choice.finish),
    }
