"""POST /v2/embed: Cohere's embeddings."""

import binascii
from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, ConfigDict
from starlette.requests import Request
from starlette.responses import Response

from tokenwire.coordinator.api.api_request import RequestHeaders
from tokenwire.coordinator.api.fields.common import Int64
from tokenwire.coordinator.api.fields.wire_values import checked_prompts
from tokenwire.coordinator.api.json_pieces import JsonPieces, array_in_parts, array_of, object_pieces, text_in_parts
from tokenwire.coordinator.api.long_response import LongResponse
from tokenwire.coordinator.api.pooling.collect import pool
from tokenwire.coordinator.api.pooling.fields import model_of_route, repeated_bytes, truncation_of
from tokenwire.coordinator.api.router import ApiRouter
from tokenwire.coordinator.generation.model_directory import ModelDirectory
from tokenwire.coordinator.parsing.request_model import RequestModel
from tokenwire.coordinator.pooling.service import PoolingService
from tokenwire.coordinator.pooling.types import Input, PoolingRequest, Results
from tokenwire.coordinator.text.template.template_options import TemplateOptions
from tokenwire.coordinator.types import ChatPrompt, ServedModel, TextPrompt
from tokenwire.errors import InvalidRequest
from tokenwire.v1 import inference_pb2 as pb

_OPTIONS = TemplateOptions(add_generation_prompt=False)
_BYTES_PER_NUMBER = 96
"""Of a vector in all types at once."""


class CohereEmbedRequest(RequestModel):
    """Cohere's request for embeddings."""

    model_config = ConfigDict(extra="allow")

    model: str | None = None
    input_type: str | None = None
    texts: Annotated[list[str] | None, BeforeValidator(checked_prompts("texts"))] = None
    images: list[str] | None = None
    inputs: Annotated[list[dict[str, Any]] | None, BeforeValidator(checked_prompts("inputs"))] = None
    output_dimension: Int64 | None = None
    embedding_types: list[Literal["float", "binary", "ubinary", "base64"]] | None = None
    truncate: Literal["NONE", "START", "END"] = "END"
    max_tokens: Int64 | None = None
    priority: Int64 = 0

    def check(self) -> None:
        """Check fields against each other. Raises InvalidRequest."""
        given = [each for each in (self.texts, self.images, self.inputs) if each is not None]
        if len(given) != 1 or not given[0]:
            raise InvalidRequest(
                "Exactly one of texts, images, or inputs must be provided, and it must be non-empty", param="texts"
            )
        if self.max_tokens is not None and self.max_tokens < -1:
            raise InvalidRequest("max_tokens must be at least -1.", param="max_tokens")
        if self.images is not None:
            raise InvalidRequest("`images` is not supported: this server takes text only.", param="images")

    def to_pooling(self, model: ServedModel, headers: RequestHeaders) -> PoolingRequest:
        """Translate into a PoolingRequest. Raises InvalidRequest."""
        instruction = self._instruction(model)
        most = 0 if model.pooling is None else model.pooling.max_embed_len
        inputs, special = self._inputs(model, instruction)
        length = None if self.truncate == "NONE" else -1 if self.max_tokens is None else self.max_tokens
        return PoolingRequest(
            request_id=headers.response_id("embd-", None),
            inputs=inputs,
            params=pb.PoolingParams(task="embed", dtype="float32", dimensions=self.output_dimension),
            add_special_tokens=special,
            truncation=truncation_of(length, "left" if self.truncate == "START" else None, model),
            max_tokens=most or None,
            priority=headers.priority(self.priority),
            bytes_per_number=_BYTES_PER_NUMBER,
            repeated_bytes=repeated_bytes(self.texts or ()),
        )

    def _instruction(self, model: ServedModel) -> str:
        """Return the prompt of the request's input type; empty without one. Raises InvalidRequest."""
        if self.input_type is None:
            return ""
        known = {} if model.pooling is None else dict(model.pooling.instructions)
        if not known:
            why = "This model does not define any input_type task instructions."
            raise InvalidRequest(f"Unsupported input_type {self.input_type!r}. {why}", param="input_type")
        if self.input_type not in known:
            supported = ", ".join(sorted(known))
            raise InvalidRequest(
                f"Unsupported input_type {self.input_type!r}. Supported values: {supported}", param="input_type"
            )
        return known[self.input_type]

    def _inputs(self, model: ServedModel, instruction: str) -> tuple[list[Input], bool]:
        """Return the inputs, and whether special tokens are added to them. Raises InvalidRequest."""
        if self.inputs is not None:
            return [_chat(_parts(each), instruction) for each in self.inputs], False
        texts = self.texts or []
        if instruction and model.template.exists:
            return [_chat([{"type": "text", "text": text}], instruction) for text in texts], False
        return [TextPrompt(instruction + text) for text in texts], True


def cohere_routes(pooling: PoolingService, models: ModelDirectory) -> ApiRouter:
    """Return the route."""
    router = ApiRouter()

    @router.post("/v2/embed", CohereEmbedRequest)
    async def create_cohere_embedding(body: CohereEmbedRequest, request: Request) -> Response:
        body.check()
        headers = RequestHeaders.of(request)
        model = await model_of_route(models, body.model, headers.caller, ("embed",), "Embeddings API")
        running = pool(pooling, body.to_pooling(model, headers), model, request)
        most = body.max_tokens if body.truncate == "NONE" else None
        kinds, texts = body.embedding_types or ["float"], body.texts
        del body  # it may be large
        results = await running
        if most is not None and max(results.lengths) > most:
            raise InvalidRequest(
                f"Input of {max(results.lengths)} tokens exceeds max_tokens={most} with truncate=NONE. "
                "Set truncate to END or START to allow truncation.",
                param="max_tokens",
            )
        _check_bits(results, kinds)
        vectors: dict[str, JsonPieces] = {kind: _vectors(results, kind) for kind in kinds}
        shown: dict[str, Any] = {"id": results.request_id, "embeddings": JsonPieces(lambda: object_pieces(vectors))}
        if texts is not None:
            shown["texts"] = array_of(map(text_in_parts, texts))
        units = {"input_tokens": results.prompt_tokens, "image_tokens": 0}
        shown["meta"] = {"api_version": {"version": "2"}, "billed_units": units}
        return LongResponse(object_pieces({**shown, "response_type": "embeddings_by_type"}))

    return router


def _chat(parts: list[dict[str, Any]], instruction: str) -> ChatPrompt:
    system = [{"role": "system", "content": [{"type": "text", "text": instruction}]}] if instruction else []
    return ChatPrompt([*system, {"role": "user", "content": parts}], _OPTIONS)


def _parts(given: dict[str, Any]) -> list[dict[str, Any]]:
    content = given.get("content")
    if not isinstance(content, list) or not all(isinstance(each, dict) for each in content):
        raise InvalidRequest("`inputs` must have a list of parts as `content`.", param="inputs")
    for part in content:
        if part.get("type") != "text" or not isinstance(part.get("text"), str):
            raise InvalidRequest("`inputs` may only have parts of text: this server takes text only.", param="inputs")
    return content


def _check_bits(results: Results, kinds: Sequence[str]) -> None:
    """Check that vectors can be packed, if they are to be. Raises InvalidRequest."""
    width = len(results.vector(0))
    if width % 8 and not {"binary", "ubinary"}.isdisjoint(kinds):
        raise InvalidRequest(
            f"Embedding dimension must be a multiple of 8 for binary embedding types, but got {width}.",
            param="embedding_types",
        )


def _vectors(results: Results, kind: str) -> JsonPieces:
    """Return all vectors as one of Cohere's types."""
    return array_in_parts([_typed(results, index, kind)] for index in range(len(results.pooled)))


def _typed(results: Results, index: int, kind: str) -> Any:
    """Return a vector as one of Cohere's types; bits are packed, the highest first."""
    if kind == "base64":
        return binascii.b2a_base64(results.pooled[index].data, newline=False).decode("ascii")
    values = results.vector(index)
    if kind == "float":
        return values.tolist()
    bits = int("".join(["1" if value >= 0 else "0" for value in values]), 2)
    packed = bits.to_bytes(len(values) // 8, "big")
    return [byte - 128 for byte in packed] if kind == "binary" else list(packed)
