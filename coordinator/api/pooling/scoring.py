"""POST /score and /rerank, with their other names: texts are scored in pairs."""

import time
from collections.abc import Sequence
from itertools import chain
from typing import Annotated, Any

from pydantic import AliasChoices, BeforeValidator, Field, model_validator
from starlette.requests import Request
from starlette.responses import Response

from tokenwire.coordinator.api.api_request import RequestHeaders
from tokenwire.coordinator.api.fields.usage import full_usage_object
from tokenwire.coordinator.api.fields.wire_values import checked_prompts
from tokenwire.coordinator.api.json_pieces import JsonPieces, object_pieces, text_in_parts
from tokenwire.coordinator.api.long_response import long_response
from tokenwire.coordinator.api.pooling.collect import pool
from tokenwire.coordinator.api.pooling.fields import UNSUPPORTED, PoolingFields, repeated_bytes
from tokenwire.coordinator.api.router import ApiRouter
from tokenwire.coordinator.generation.model_directory import ModelDirectory
from tokenwire.coordinator.pooling.scores import ScoredTexts, pair_scores, ranked
from tokenwire.coordinator.pooling.service import PoolingService
from tokenwire.coordinator.pooling.types import PoolingRequest
from tokenwire.coordinator.types import ServedModel, Usage
from tokenwire.errors import InvalidRequest
from tokenwire.process.value_class import value_class

_MEDIA = "MultiModalParam is not supported for {0}"
"""vLLM's message."""


class ScoringFields(PoolingFields):
    """Fields of both routes."""

    max_tokens_per_query: int = 0
    max_tokens_per_doc: int = 0
    # For templates for pairs, which a server has only if it is given one.
    instruction: str | None = None
    chat_template_kwargs: dict[str, Any] | None = None

    def check(self) -> None:
        """Reject fields that are not served. Those that vLLM has removed elsewhere have no effect here, as there."""
        UNSUPPORTED.check_body(self)

    def repeated(self) -> Sequence[Any]:
        """Return what a response repeats of the request."""
        return ()

    def to_pooling(self, texts: ScoredTexts, model: ServedModel, headers: RequestHeaders) -> PoolingRequest:
        """Translate into a PoolingRequest. Raises InvalidRequest or NotFound."""
        instruction = {} if self.instruction is None else {"instruction": self.instruction}
        inputs = texts.inputs(model, {**instruction, **(self.chat_template_kwargs or {})})
        return PoolingRequest(
            request_id=self.response_id("score-", headers),
            inputs=inputs,
            params=self.pooling_params("embed" if len(inputs) > len(texts.second) else "classify"),
            truncation=self.truncation(model),
            cuts_second=self.max_tokens_per_doc > 0,
            pads=self.padding == "max_length",
            priority=headers.priority(self.priority),
            cache_salt=self.cache_salt,
            repeated_bytes=repeated_bytes(self.repeated()),
        )


ScoreInput = str | dict[str, Any]
_NAMES = (("queries", "documents"), ("queries", "items"), ("data_1", "data_2"), ("text_1", "text_2"))
"""That go together."""


class ScoreRequest(ScoringFields):
    """vLLM's score request: two texts or lists of them, under any of their names."""

    data_1: Annotated[
        ScoreInput | list[ScoreInput],
        BeforeValidator(checked_prompts("queries")),
        Field(validation_alias=AliasChoices(*dict.fromkeys(first for first, _ in _NAMES))),
    ]
    data_2: Annotated[
        ScoreInput | list[ScoreInput],
        BeforeValidator(checked_prompts("documents")),
        Field(validation_alias=AliasChoices(*(second for _, second in _NAMES))),
    ]

    @model_validator(mode="before")
    @classmethod
    def _check_names(cls, body: Any) -> Any:
        given = set(chain(*_NAMES)) & body.keys() if isinstance(body, dict) else set()
        if len(given) == 2 and not any(given == {*pair} for pair in _NAMES):
            pairs = ", ".join(" and ".join(pair) for pair in _NAMES)
            raise ValueError(f"Texts to score come as {pairs}, not as {' and '.join(sorted(given))}.")
        return body


class RerankRequest(ScoringFields):
    """Jina's and Cohere's rerank request, with vLLM's extensions."""

    query: ScoreInput
    documents: Annotated[ScoreInput | list[ScoreInput], BeforeValidator(checked_prompts("documents"))]
    top_n: Annotated[int, Field(ge=0)] = 0

    def repeated(self) -> Sequence[Any]:
        """Return the documents."""
        return self.documents if isinstance(self.documents, list) else [self.documents]


@value_class
class _Scored:
    """The scores of a request."""

    request_id: str
    model: str
    scores: Sequence[float]
    tokens: int


def _scores(model: ServedModel) -> bool:
    return model.pooling is not None and bool(model.pooling.score)


async def _score(
    service: PoolingService, models: ModelDirectory, body: ScoringFields, given: tuple[Any, Any], request: Request
) -> _Scored:
    """Score the texts that are given; none of them is kept meanwhile. Raises what `pool` does."""
    body.check()
    headers = RequestHeaders.of(request)
    model = await models.resolve(body.model, headers.caller, suits=_scores)
    whole = ScoredTexts(*(_texts(each, model) for each in given))
    whole.check()
    whole.inputs(model)  # whether it scores at all
    texts = await whole.cut(model, body.max_tokens_per_query, body.max_tokens_per_doc)
    counts = len(texts.first), len(texts.second)
    running = pool(service, body.to_pooling(texts, model, headers), model, request)
    del body, given, whole, texts
    results = await running
    return _Scored(results.request_id, model.name, await pair_scores(results, *counts), results.prompt_tokens)


def scoring_routes(pooling: PoolingService, models: ModelDirectory) -> ApiRouter:
    """Return the routes."""
    router = ApiRouter()

    @router.post("/score", ScoreRequest)
    @router.post("/v1/score", ScoreRequest)
    async def create_score(body: ScoreRequest, request: Request) -> Response:
        created = int(time.time())
        running = _score(pooling, models, body, (body.data_1, body.data_2), request)
        del body  # it may be large
        scored = await running
        data = ({"index": index, "object": "score", "score": score} for index, score in enumerate(scored.scores))
        shown = {"id": scored.request_id, "object": "list", "created": created, "model": scored.model, "data": data}
        return long_response({**shown, "usage": full_usage_object(Usage(scored.tokens))}, "data")

    @router.post("/rerank", RerankRequest)
    @router.post("/v1/rerank", RerankRequest)
    @router.post("/v2/rerank", RerankRequest)
    async def rerank(body: RerankRequest, request: Request) -> Response:
        running = _score(pooling, models, body, (body.query, body.documents), request)
        documents, top_n = body.repeated(), body.top_n
        del body
        scored = await running
        results = (
            {"index": index, "document": _shown(documents[index]), "relevance_score": scored.scores[index]}
            for index in ranked(scored.scores, top_n)
        )
        usage = {"prompt_tokens": scored.tokens, "total_tokens": scored.tokens}
        shown = {"id": scored.request_id, "model": scored.model, "usage": usage}
        return long_response({**shown, "results": results}, "results")

    return router


def _shown(document: str) -> JsonPieces:
    shown = {"text": text_in_parts(document), "multi_modal": None}
    return JsonPieces(lambda: object_pieces(shown))


def _texts(given: Any, model: ServedModel) -> list[str]:
    """Return texts as a list. Raises InvalidRequest for media."""
    listed = given if isinstance(given, list) else [given]
    if not all(isinstance(each, str) for each in listed):
        raise InvalidRequest(_MEDIA.format(model.name))
    return listed
