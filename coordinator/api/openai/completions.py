"""POST /v1/completions."""

import time
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Annotated, Any

from pydantic import BeforeValidator
from starlette.requests import Request
from starlette.responses import Response

from tokenwire.coordinator.api.api_request import NOT_SERVED, RequestHeaders, UnsupportedFields
from tokenwire.coordinator.api.fields.common import RequestFields, check_stream_options
from tokenwire.coordinator.api.fields.finish import weight_version_spans
from tokenwire.coordinator.api.fields.logprobs import LogprobStyle, completion_pieces, prompt_logprobs
from tokenwire.coordinator.api.fields.usage import full_usage_object
from tokenwire.coordinator.api.fields.wire_values import checked_number, checked_prompts
from tokenwire.coordinator.api.json_pieces import JsonPieces
from tokenwire.coordinator.api.long_response import long_response
from tokenwire.coordinator.api.openai.chunk_encoder import ChunkOptions
from tokenwire.coordinator.api.openai.completion_chunks import CompletionChunks, with_prompt
from tokenwire.coordinator.api.respond import EventStream, collect
from tokenwire.coordinator.api.router import ApiRouter
from tokenwire.coordinator.generation.limits import lacks_route
from tokenwire.coordinator.generation.model_directory import ModelDirectory
from tokenwire.coordinator.generation.service import GenerationService, PreparedRequest
from tokenwire.coordinator.generation.traffic_split import Conversation
from tokenwire.coordinator.output.collect import CollectedChoice
from tokenwire.coordinator.output.settings import ApiSettings
from tokenwire.coordinator.text.logprobs import ScoredPosition
from tokenwire.coordinator.types import GenerationRequest, Prompt, TextPrompt, TokenPrompt, Usage
from tokenwire.errors import InvalidRequest

# Fields of vLLM's completions route alone that are not served, with the values that have no effect.
COMPLETIONS_NOT_SERVED: dict[str, tuple[Any, ...]] = {**NOT_SERVED, "suffix": (None, ""), "prompt_embeds": (None, [])}
_DEFAULT_MAX_TOKENS = 16


class CompletionRequest(RequestFields):
    """OpenAI's completion request, with vLLM's extensions."""

    prompt: Annotated[
        str | list[int] | list[str] | list[list[int]] | None, BeforeValidator(checked_prompts("prompt"))
    ] = None
    max_tokens: Annotated[int, BeforeValidator(lambda value: _DEFAULT_MAX_TOKENS if value is None else value)] = (
        _DEFAULT_MAX_TOKENS
    )
    logprobs: Annotated[int | None, BeforeValidator(checked_number("logprobs"))] = None
    add_special_tokens: bool = True
    suffix: str | None = None
    prompt_embeds: bytes | list[bytes] | None = None

    @property
    def scores_only(self) -> bool:
        """Whether only the prompt is scored; the engine still generates one token, which is not returned."""
        return bool(self.echo) and self.max_tokens == 0

    def check(self) -> None:
        """Check fields against each other. Raises InvalidRequest."""
        check_stream_options(self)
        self.check_logprobs()
        if self.logprobs is not None and self.logprobs < -1:
            raise InvalidRequest("`logprobs` must be a positive value or -1.", param="logprobs")
        if self.logprob_token_ids and self.scores_only:
            raise InvalidRequest(
                "`logprob_token_ids` is not supported when `echo=True` and `max_tokens=0` because no output tokens "
                "are generated.",
                param="logprob_token_ids",
            )
        if self.logprob_token_ids and self.logprobs is None:
            raise InvalidRequest("when using `logprob_token_ids`, `logprobs` must be set.", param="logprob_token_ids")

    def prompts(self) -> Sequence[Prompt]:
        """Return the prompts. Raises InvalidRequest if there is none."""
        if self.prompt == []:
            raise InvalidRequest("You must pass at least one prompt", param="prompt")
        if not self.prompt:
            raise InvalidRequest("Either prompt or prompt_embeds must be provided and non-empty.", param="prompt")
        if isinstance(self.prompt, str):
            return [TextPrompt(self.prompt, self.add_special_tokens)]
        if isinstance(self.prompt[0], int):
            return [TokenPrompt(self.prompt)]
        return [
            TextPrompt(part, self.add_special_tokens) if isinstance(part, str) else TokenPrompt(part)
            for part in self.prompt
        ]

    def to_generation(self, headers: RequestHeaders) -> GenerationRequest:
        """Translate into a GenerationRequest. Raises InvalidRequest."""
        return GenerationRequest(
            request_id=headers.response_id("cmpl-", self.request_id),
            model=self.model or "",
            prompts=self.prompts(),
            sampling=self.sampling(
                1 if self.scores_only else self.max_tokens,
                self.logprobs,
                prompt_logprobs=self.logprobs if self.echo else None,
            ),
            n=self.n,
            text=self.text_rules(),
            priority=headers.priority(self.priority),
            cache_salt=self.cache_salt,
            conversation_id=headers.session(self),
            is_recorded=not self.scores_only,
            data_parallel_rank=headers.data_parallel_rank,
            weights=self.weight_limits(headers.weights),
            truncation=self.truncation(),
            stream_interval=self.stream_interval or 1,
            streams=bool(self.stream),
            returns_ids=bool(self.return_token_ids),
            repeats_prompt=bool(self.echo or self.return_token_ids),
        )

    def chunk_options(self, api: ApiSettings) -> ChunkOptions:
        """Return which fields a stream has in addition to the text."""
        return ChunkOptions(
            return_token_ids=bool(self.return_token_ids),
            include_usage=self.shows_usage(api),
            continuous_usage=self.shows_continuous_usage(api),
            usage_details=api.prompt_tokens_details,
            logprobs=self.logprob_style(api),
            show_prompt=bool(self.echo),
            scores_only=self.scores_only,
        )

    def logprob_style(self, api: ApiSettings) -> LogprobStyle | None:
        """Return the style of log-probabilities; None: not requested."""
        if self.logprobs is None:
            return None
        as_ids = self.return_tokens_as_token_ids
        return LogprobStyle(
            self.logprobs,
            everything=bool(self.logprob_token_ids),
            as_token_ids=api.tokens_as_token_ids if as_ids is None else as_ids,
        )


def completion_routes(generation: GenerationService, models: ModelDirectory, api: ApiSettings) -> ApiRouter:
    """Return the completions route."""
    router = ApiRouter(accepts_transfers=True)
    unsupported = UnsupportedFields(COMPLETIONS_NOT_SERVED)

    @router.post("/v1/completions", CompletionRequest)
    async def create_completion(body: CompletionRequest, request: Request) -> Response:
        unsupported.check_body(body)
        prepared = await prepare_completion(body, RequestHeaders.of(request), generation, models)
        created = int(time.time())
        if body.stream:
            return EventStream(generation, prepared, CompletionChunks(prepared, created, body.chunk_options(api)))
        choices = await collect(generation, prepared, request)
        return long_response(_full_response(body, api, prepared, choices, created), "choices")

    return router


async def prepare_completion(
    body: CompletionRequest,
    headers: RequestHeaders,
    generation: GenerationService,
    models: ModelDirectory,
    submits: bool = True,
) -> PreparedRequest:
    """Check, translate and tokenize. Raises InvalidRequest, NotFound, Forbidden or Unavailable.

    submits: whether the completion is to be generated; without that, a full queue does not concern it.
    """
    body.check()
    wanted = body.to_generation(headers)
    conversation = partial(Conversation, headers.caller.tenant, wanted.conversation_id)
    model = await models.resolve(body.model, headers.caller, conversation)
    if model.pooling is not None:
        raise lacks_route(model, "Completions API")
    prepared = await generation.prepare(wanted, model, headers.caller, submits)
    if prepared.has_large_parameters:
        body.drop_copied()
    return prepared


def _full_response(
    body: CompletionRequest,
    api: ApiSettings,
    prepared: PreparedRequest,
    choices: list[CollectedChoice],
    created: int,
) -> dict[str, Any]:
    usage = Usage(prepared.prompt_tokens, sum(len(choice.token_ids) for choice in choices))
    if api.prompt_tokens_details:
        usage.cached_tokens = choices[-1].prefill.cached_tokens
    return {
        "id": prepared.request.request_id,
        "object": "text_completion",
        "created": created,
        "model": prepared.model.name,
        "choices": _choices(body, api, prepared, choices),
        "service_tier": None,
        "system_fingerprint": None,
        "usage": full_usage_object(usage),
        "kv_transfer_params": choices[0].finish.kv_transfer_params,
        "ec_transfer_params": None,
        "metrics": None,
    }


def _choices(
    body: CompletionRequest, api: ApiSettings, prepared: PreparedRequest, choices: list[CollectedChoice]
) -> Iterator[dict[str, Any]]:
    """Yield the choices; those of one prompt share what is shown of it."""
    n = prepared.request.n
    for position, prompt in enumerate(prepared.prompts):
        shown = prepared.text_of(position * n) if body.echo and not body.return_token_ids else ""
        scores = prompt_logprobs(choices[position * n].prefill.logprobs)
        for index in range(position * n, position * n + n):
            choice = choices[index]
            text = "" if body.scores_only else choice.text
            yield {
                "index": index,
                "text": shown + text,
                "logprobs": _logprobs(body, api, prepared, index, choice),
                "finish_reason": choice.finish.reason,
                "stop_reason": choice.finish.stop_reason,
                "token_ids": choice.token_ids if body.return_token_ids else None,
                "prompt_logprobs": scores,
                "prompt_token_ids": list(prompt.token_ids) if body.return_token_ids else None,
                "routed_experts": None,
                **({"weight_versions": weight_version_spans(choice.finish)} if body.return_token_ids else {}),
            }


def _logprobs(
    body: CompletionRequest, api: ApiSettings, prepared: PreparedRequest, index: int, choice: CollectedChoice
) -> JsonPieces | None:
    style = body.logprob_style(api)
    if style is None:
        return None
    token_ids: Sequence[int] = [] if body.scores_only else choice.token_ids
    positions: Iterable[ScoredPosition | None] = [] if body.scores_only else choice.logprobs or []
    if body.echo:
        token_ids, positions = with_prompt(prepared, index, choice.prefill, token_ids, positions)
    return completion_pieces(token_ids, positions, style, prepared.model.token_texts.text)
