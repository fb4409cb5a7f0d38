"""POST /generate/, /chat/ and /get_sequence_logprobs/: the data routes of TRL's own server, up to version 1.10."""

import uuid
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import islice

from starlette.requests import Request
from starlette.responses import Response

from tokenwire.coordinator.api.api_request import RequestHeaders, caller_of
from tokenwire.coordinator.api.json_pieces import JsonPieces, array_in_parts, object_pieces
from tokenwire.coordinator.api.long_response import LongResponse
from tokenwire.coordinator.api.respond import collect
from tokenwire.coordinator.api.router import ApiRouter
from tokenwire.coordinator.api.tokens.sampling_params import unsupported_sampling_params
from tokenwire.coordinator.api.tokens.trl_request import TrlChat, TrlGenerate, TrlSampling, TrlSequenceLogprobs
from tokenwire.coordinator.api.tokens.trl_response import scored_arrays, scored_lists, sequence_scores
from tokenwire.coordinator.generation.model_directory import ModelDirectory
from tokenwire.coordinator.generation.prompts import PreparedPrompt
from tokenwire.coordinator.generation.service import GenerationService, PreparedRequest
from tokenwire.coordinator.output.collect import CollectedChoice
from tokenwire.coordinator.types import GenerationRequest, Prompt


def trl_routes(generation: GenerationService, models: ModelDirectory) -> ApiRouter:
    """Return the routes. Without the trailing slashes they would be other servers' routes."""
    router = ApiRouter()
    unsupported = unsupported_sampling_params()

    @router.post("/generate/", TrlGenerate)
    async def generate(body: TrlGenerate, request: Request) -> Response:
        return await complete(body, body.to_prompts(), request)

    @router.post("/chat/", TrlChat)
    async def chat(body: TrlChat, request: Request) -> Response:
        return await complete(body, body.to_prompts(), request)

    async def complete(body: TrlSampling, prompts: Sequence[Prompt], request: Request) -> Response:
        params, headers = body.sampling_params(), RequestHeaders.of(request)
        unsupported.check(params.model_extra)
        wanted = params.to_generation(_new_id(), prompts)
        weights, session = body.weight_limits(headers.weights), headers.conversation_id
        wanted = replace(wanted, weights=weights, conversation_id=session)
        prepared = await _prepare(generation, models, wanted, request)
        choices = await collect(generation, prepared, request)
        scored: dict[str, JsonPieces | None] = {"logprobs": None, "logprob_token_ids": None}
        if params.logprobs is not None:
            scored |= scored_lists([await sequence_scores(choice.logprobs or ()) for choice in choices])
        prompt_ids, reply_ids = (_id_lists(some) for some in (prepared.prompts, choices))
        return LongResponse(object_pieces({"prompt_ids": prompt_ids, "completion_ids": reply_ids, **scored}))

    @router.post("/get_sequence_logprobs/", TrlSequenceLogprobs)
    async def get_sequence_logprobs(body: TrlSequenceLogprobs, request: Request) -> Response:
        prepared = await _prepare(generation, models, body.to_generation(_new_id()), request)
        choices = await collect(generation, prepared, request)
        completions = [
            await sequence_scores(islice(choice.prefill.logprobs or (), length, None))
            for choice, length in zip(choices, body.prompt_lengths, strict=True)
        ]
        if body.response_format == "binary":
            return LongResponse(object_pieces(await scored_arrays(completions, body.top_logprobs)))
        return LongResponse(object_pieces(scored_lists(completions)))

    return router


def _id_lists(some: Iterable[PreparedPrompt | CollectedChoice]) -> JsonPieces:
    return array_in_parts([list(each.token_ids)] for each in some)


def _new_id() -> str:
    return f"trl-{uuid.uuid4().hex}"


async def _prepare(
    generation: GenerationService, models: ModelDirectory, wanted: GenerationRequest, request: Request
) -> PreparedRequest:
    caller = caller_of(request)
    return await generation.prepare(wanted, await models.resolve(None, caller), caller)
