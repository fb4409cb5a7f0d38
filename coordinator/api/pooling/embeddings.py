"""POST /v1/embeddings: OpenAI's embeddings, with vLLM's extensions."""

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Any

from pydantic import BeforeValidator
from starlette.requests import Request
from starlette.responses import Response

from tokenwire.coordinator.api.api_request import RequestHeaders
from tokenwire.coordinator.api.fields.usage import full_usage_object
from tokenwire.coordinator.api.fields.wire_values import checked_prompts
from tokenwire.coordinator.api.pooling.collect import pool
from tokenwire.coordinator.api.pooling.encoding import bytes_per_number, encoded, wire_dtype
from tokenwire.coordinator.api.pooling.fields import ChatFields, EncodingFields, model_of_route
from tokenwire.coordinator.api.router import ApiRouter
from tokenwire.coordinator.generation.model_directory import ModelDirectory
from tokenwire.coordinator.pooling.service import PoolingService
from tokenwire.coordinator.pooling.types import Input, PoolingRequest
from tokenwire.coordinator.types import ServedModel, TextPrompt, TokenPrompt, Usage
from tokenwire.errors import InvalidRequest

_ChatMessage = dict[str, Any]


class InputFields(ChatFields):
    """Texts, ids or messages."""

    input: Annotated[
        str | list[int] | list[str] | list[list[int]] | list[_ChatMessage] | list[list[_ChatMessage]] | None,
        BeforeValidator(checked_prompts("input")),
    ] = None
    messages: Annotated[
        list[_ChatMessage] | list[list[_ChatMessage]] | None, BeforeValidator(checked_prompts("messages"))
    ] = None

    def inputs(self) -> Sequence[Input]:
        """Return the inputs. Raises InvalidRequest if there are none."""
        given = self._given
        if given is None:
            raise InvalidRequest("Either `input` or `messages` must be provided.", param="input")
        if isinstance(given, str):
            return [TextPrompt(given)]
        if not given:
            raise InvalidRequest("You must pass at least one prompt", param="input")
        first = given[0]
        if isinstance(first, int):
            return [TokenPrompt(given, "input")]
        if isinstance(first, dict):
            return [self.chat_prompt(given)]
        if isinstance(first, list) and first and isinstance(first[0], dict):
            return [self.chat_prompt(messages) for messages in given]
        return [TextPrompt(each) if isinstance(each, str) else TokenPrompt(each, "input") for each in given]

    @property
    def _given(self) -> Any:
        """What is pooled: as in vLLM messages, unless there are none."""
        return self.messages if self.input is None or (self.messages and all(self.messages)) else self.input

    @property
    def adds_special_tokens(self) -> bool:
        """Whether special tokens are added to what is tokenized."""
        if self.add_special_tokens is not None:
            return self.add_special_tokens
        given = self._given
        first = given[0] if isinstance(given, list) and given else given
        return not isinstance(first[0] if isinstance(first, list) and first else first, dict)

    def pooling_request(
        self,
        prefix: str,
        task: str,
        model: ServedModel,
        headers: RequestHeaders,
        dtype: str = "float32",
        bytes_per_number: int = 32,
        dimensions: int | None = None,
    ) -> PoolingRequest:
        """Translate into a PoolingRequest with an id that has a prefix. Raises InvalidRequest."""
        return PoolingRequest(
            request_id=self.response_id(prefix, headers),
            inputs=self.inputs(),
            params=self.pooling_params(task, dimensions, dtype),
            add_special_tokens=self.adds_special_tokens,
            truncation=self.truncation(model),
            pads=self.padding == "max_length",
            priority=headers.priority(self.priority),
            cache_salt=self.cache_salt,
            bytes_per_number=bytes_per_number,
        )


class EmbeddingRequest(InputFields, EncodingFields):
    """OpenAI's embedding request, with vLLM's extensions."""

    dimensions: int | None = None

    def to_pooling(self, model: ServedModel, headers: RequestHeaders) -> PoolingRequest:
        """Translate into a PoolingRequest. Raises InvalidRequest."""
        most = 0 if model.pooling is None else model.pooling.max_embed_len
        size = bytes_per_number(self)
        common = self.pooling_request("embd-", "embed", model, headers, wire_dtype(self), size, self.dimensions)
        return replace(common, max_tokens=most or None)


def embedding_routes(pooling: PoolingService, models: ModelDirectory) -> ApiRouter:
    """Return the embeddings route."""
    router = ApiRouter()

    @router.post("/v1/embeddings", EmbeddingRequest)
    async def create_embedding(body: EmbeddingRequest, request: Request) -> Response:
        body.check()
        headers = RequestHeaders.of(request)
        model = await model_of_route(models, body.model, headers.caller, ("embed",), "Embeddings API")
        running, encoding = pool(pooling, body.to_pooling(model, headers), model, request), body.encoding()
        created = int(time.time())
        del body  # it may be large
        results = await running
        shown = {"id": results.request_id, "object": "list", "created": created, "model": model.name, "data": []}
        shown["usage"] = full_usage_object(Usage(results.prompt_tokens))
        return encoded(results, encoding, shown, "embedding", "embedding")

    return router
